import { foldedWord } from '#addresses/ip-address.js';
import { sharedWords } from '#arrays/shared-array.js';
import { type ListedMembership, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { Family, Policy } from '#contracts/policy/policy-model.js';
import type { ProofSample, ProofSamples } from '#contracts/policy/proof-types.js';
import type { SourceIndex } from '#policy/model/sources/source-index.js';
import { addClasses, classesOf } from './proof-classes.js';
import { ProofCorners } from './proof-corners.js';
import { ProofMemory } from './proof-memory.js';
import { ProofOwners } from './proof-owners.js';
import { type DecidedPackets, ProofPackets } from './proof-packets.js';
import { ReferenceWalk } from './proof-walk.js';
import { ProofRandom } from './random-numbers.js';

/**
 * The maximum number of equivalence classes for a complete proof sample, which has at least six packets for
 * each class.
 */
const MAX_CLASSES = 1 << 13;
/**
 * The maximum number of rules for counting equivalence classes. A policy with more rules is assumed to have
 * too many classes for a complete sample.
 */
const MAX_RULES_TO_COUNT = 1 << 12;
/**
 * The approximate number of packets that narrowly miss rules of their own group. The proof sample has about
 * as many packets that combine two groups.
 */
const BESIDE = 1 << 14;
/**
 * The maximum number of packets that narrowly miss each rule, in a sample that contains every equivalence
 * class.
 */
const BESIDE_EACH = 8;
/**
 * The approximate number of packets from addresses of Kubernetes objects, if there are too many equivalence
 * classes for a complete sample.
 */
const OWNED = 1 << 13;

type Decided = Pick<DecidedPackets, 'packets' | 'expected'>;

export type ProofMemories = Readonly<Record<Family, ProofMemory>>;

export const proofMemories = (): ProofMemories => ({ ipv4: new ProofMemory('ipv4'), ipv6: new ProofMemory('ipv6') });

/**
 * Returns the proof samples of a program that `compile` makes with the same options: IPv4 packets and, with
 * `ipv6`, IPv6 packets.
 */
export function samplesOf(
  policy: Policy,
  {
    ipv6 = false,
    memories = proofMemories(),
    membership,
  }: { readonly ipv6?: boolean; readonly memories?: ProofMemories; readonly membership?: ListedMembership } = {},
): ProofSamples {
  const families: readonly Family[] = ipv6 ? ['ipv4', 'ipv6'] : ['ipv4'];
  return families.map((family) => sampleOf(policy, memories[family], membership));
}

/**
 * Returns the packets of the family of `memory` for the proof of a compiled policy. They include packets of
 * each equivalence class, or, if there are too many classes, one packet for each rule. Packets that narrowly
 * miss a rule, and packets that combine two groups, follow. Equal policies with equal Kubernetes members
 * (addresses of pods and nodes) give equal samples, independently of `memory`.
 */
export function sampleOf(
  policy: Policy,
  memory: ProofMemory = new ProofMemory(),
  membership: ListedMembership = NOTHING_LISTED,
): ProofSample {
  const { family } = memory;
  const { scope: resolution } = membership;
  const index = memory.sourcesOf(policy, resolution);
  const owners = new ProofOwners(policy, index, membership, family);
  const rules = policy.groups.reduce((sum, group) => sum + group.rules.length, 0);
  const classes = rules > MAX_RULES_TO_COUNT ? null : classesOf(policy, family, index, owners, MAX_CLASSES);
  if (classes === null) {
    const decided = memory.decided(policy, resolution, densityOf(rules));
    return sample(family, merged(decided, ownedPackets(policy, index, owners, family)), null, false);
  }
  const packets = new ProofPackets(new ReferenceWalk(policy, index), undefined, owners, family);
  const random = new ProofRandom();
  random.begin(seedOf(policy));
  addClasses(packets, classes, random);
  const corners = new ProofCorners(packets, Math.min(BESIDE_EACH, densityOf(rules)));
  for (let group = 0; group < policy.groups.length && !packets.exhausted; group++) {
    corners.addBeside(group);
    corners.addAcross(group);
  }
  return sample(family, packets.decided(), classes.count, !packets.exhausted);
}

/**
 * Returns the number of packets for each rule. For a large policy, a small change of `rules` rarely changes
 * the result. `ProofMemory` can reuse its packets only if the result stays the same.
 */
function densityOf(rules: number): number {
  return rules <= BESIDE ? Math.floor(BESIDE / Math.max(1, rules)) : 2 ** -Math.ceil(Math.log2(rules / BESIDE));
}

/**
 * Returns packets from sources with owners (Kubernetes objects), for a policy with more than `MAX_CLASSES`
 * classes. `ProofMemory` does not keep them, because they are few.
 */
function ownedPackets(policy: Policy, index: SourceIndex, owners: ProofOwners, family: Family): Decided {
  const packets = new ProofPackets(new ReferenceWalk(policy, index), undefined, owners, family);
  const corners = new ProofCorners(packets, 1);
  const each = Math.max(1, Math.floor(OWNED / Math.max(1, owners.sources.length)));
  for (const owned of owners.sources) {
    corners.addOwned(owned, index.groupsOfOwner(owned.source, owners.ownerOf(owned.owner)), each);
  }
  return packets.decided();
}

function merged(one: Decided, other: Decided): Decided {
  if (other.expected.length === 0) return one;
  const packets = sharedWords(one.packets.length + other.packets.length);
  packets.set(one.packets);
  packets.set(other.packets, one.packets.length);
  const expected = sharedWords(one.expected.length + other.expected.length);
  expected.set(one.expected);
  expected.set(other.expected, one.expected.length);
  return { packets, expected };
}

function sample(
  family: Family,
  { packets, expected }: Decided,
  classes: number | null,
  complete: boolean,
): ProofSample {
  return { family, packets, expected, classes, complete };
}

/** Returns a seed that is usually different for different policies. */
function seedOf({ groups }: Policy): number {
  let mixed = groups.length;
  const mix = (number: number): void => {
    mixed = Math.imul(mixed ^ number, 0x01000193);
    mixed ^= mixed >>> 15;
  };
  for (const { sources, rules } of groups) {
    mix(rules.length);
    for (const { address, length } of sources) mix(foldedWord(address) + length);
    for (const { address, length } of rules[0]?.destinations ?? []) mix(foldedWord(address) + length);
  }
  return mixed;
}

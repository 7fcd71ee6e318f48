import type { Policy } from '#contracts/policy-model.js';
import type { ProofSample } from '#contracts/proof-types.js';
import { SourceIndex } from '#policy/model/source-index.js';
import { addClasses, classesOf } from './proof-classes.js';
import { ProofCorners } from './proof-corners.js';
import { ProofMemory } from './proof-memory.js';
import { type DecidedPackets, ProofPackets } from './proof-packets.js';
import { ReferenceWalk } from './proof-walk.js';
import { ProofRandom } from './random-numbers.js';

/** Up to this many classes, every class is checked, with six packets each. */
const MAX_CLASSES = 1 << 13;
/** With more rules, classes are not counted: there are more than `MAX_CLASSES`. */
const MAX_RULES_TO_COUNT = 1 << 12;
/** The approximate number of packets beside rules, both within a group and across groups. */
const BESIDE = 1 << 14;
/** The maximum number of packets beside each rule if every class is checked. */
const BESIDE_EACH = 8;

/**
 * Packets to check a compiled policy with: packets of each equivalence class, or, if there are too many
 * classes, one packet inside each rule. In both cases others beside the rules are added. Equal policies give
 * equal samples, whatever is in `memory`.
 */
export function sampleOf(policy: Policy, memory: ProofMemory = new ProofMemory()): ProofSample {
  const rules = policy.groups.reduce((sum, group) => sum + group.rules.length, 0);
  const classes = rules > MAX_RULES_TO_COUNT ? null : classesOf(policy, MAX_CLASSES);
  if (classes === null) return sample(memory.decided(policy, densityOf(rules)), null, false);
  const packets = new ProofPackets(new ReferenceWalk(policy, new SourceIndex(policy.groups)));
  const random = new ProofRandom();
  random.begin(seedOf(policy));
  addClasses(packets, classes, random);
  const corners = new ProofCorners(packets, Math.min(BESIDE_EACH, densityOf(rules)));
  for (let group = 0; group < policy.groups.length && !packets.exhausted; group++) {
    corners.addBeside(group);
    corners.addAcross(group);
  }
  return sample(packets.decided(), classes.count, !packets.exhausted);
}

/**
 * Rarely changes if one group of many changes, so that the kept packets of the other groups can be reused.
 */
function densityOf(rules: number): number {
  return rules <= BESIDE ? Math.floor(BESIDE / Math.max(1, rules)) : 2 ** -Math.ceil(Math.log2(rules / BESIDE));
}

function sample({ packets, expected }: DecidedPackets, classes: number | null, complete: boolean): ProofSample {
  return { packets, expected, classes, complete };
}

/** A seed that usually differs for different policies. */
function seedOf({ groups }: Policy): number {
  let mixed = groups.length;
  const mix = (number: number): void => {
    mixed = Math.imul(mixed ^ number, 0x01000193);
    mixed ^= mixed >>> 15;
  };
  for (const { sources, rules } of groups) {
    mix(rules.length);
    for (const { address, length } of sources) mix(address + length);
    for (const { address, length } of rules[0]?.destinations ?? []) mix(address + length);
  }
  return mixed;
}

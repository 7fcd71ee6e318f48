import { itemAt } from '#arrays/read.js';
import { IPPROTO, type Policy, type Rule } from '#contracts/policy/policy-model.js';
import { NO_OWNER_CELL } from '#contracts/policy/proof-types.js';
import { lastAddress, ofFamily } from '#policy/model/ip-address.js';
import { affectedSources, isInScope } from '#policy/model/sources/rule-scope.js';
import type { SourceIndex } from '#policy/model/sources/source-index.js';
import { type Axis, addressAxis, endOf, type KeyAxes, keyAxes, LAST_ADDRESS, lastOfFields } from './proof-axes.js';
import type { ProofOwners } from './proof-owners.js';
import type { ProofPackets } from './proof-packets.js';
import type { ProofRandom } from './random-numbers.js';

/**
 * The maximum number of rule visits of `classesOf`. Above this limit it returns null, as for a policy with
 * too many equivalence classes.
 */
const MAX_LOOKS = 1 << 21;
/**
 * When the proof sample has more packets than this, `addClasses` omits the additional packets for ICMP types.
 */
const ENOUGH = 1 << 16;

/**
 * A rectangle of source and destination addresses, with the equivalence classes of the packets between them.
 * `keys` divides these packets into classes by protocol, ports, and ICMP type and code.
 */
type Region = {
  /**
   * The number that stands for the owner of the sources in packets. If the sources have no owner, the sample
   * also contains packets just outside the sources.
   */
  readonly owner: number;
  readonly sourceFirst: number;
  readonly sourceLast: number;
  readonly destinationFirst: number;
  readonly destinationLast: number;
  readonly keys: readonly KeyAxes[];
};

/**
 * The equivalence classes of a policy: packets of one class match the same rules. `count` is the number of
 * classes in all regions together.
 */
export type Classes = { readonly regions: readonly Region[]; readonly count: number };

/**
 * Returns the equivalence classes of a policy. Divides the sources at each bound of a source prefix, then
 * each interval of sources at the destination bounds of its rules. Then divides by protocol, ports, and ICMP
 * types and codes. Returns null if the policy has more than `limit` classes, or if the search visits too many
 * rules.
 */
export function classesOf({ groups }: Policy, index: SourceIndex, owners: ProofOwners, limit: number): Classes | null {
  const starts = addressAxis(groups.flatMap((group) => affectedSources(group, index.resolution)));
  const sources = [
    ...starts.map((first, at) => ({ first, last: endOf(starts, at, LAST_ADDRESS), owner: NO_OWNER_CELL })),
    ...owners.sources.map(({ source, owner }) => ({ first: source, last: source, owner })),
  ];
  const regions: Region[] = [];
  let count = 0;
  let looks = 0;
  for (const { first, last, owner } of sources) {
    const rules = index.groupsOfOwner(first, owners.ownerOf(owner)).flatMap(({ group, scope }) => {
      const own = itemAt(groups, group).rules;
      return scope === 'all' ? own : own.filter(({ action }) => isInScope(scope, action));
    });
    const destinations = addressAxis(rules.flatMap((rule) => rule.destinations));
    const everywhere = rules.filter((rule) => rule.destinations.length === 0);
    const somewhere = rulesByInterval(rules, destinations, MAX_LOOKS - looks);
    looks += groups.length + rules.length + destinations.length * (1 + everywhere.length);
    if (somewhere === null || looks > MAX_LOOKS) return null;
    for (const [place, destinationFirst] of destinations.entries()) {
      const keys = keyAxes([...everywhere, ...(somewhere[place] ?? [])]);
      for (const { major, minor } of keys) count += major.length * minor.length;
      if (count > limit) return null;
      const destinationLast = endOf(destinations, place, LAST_ADDRESS);
      regions.push({
        owner,
        sourceFirst: first,
        sourceLast: last,
        destinationFirst,
        destinationLast,
        keys,
      });
    }
  }
  return { regions, count };
}

/**
 * Adds two packets of each equivalence class: one with the first value of every field, and one with the last.
 * Then adds four packets just outside the source and destination bounds of the class. They detect an interval
 * of the compiled tables that is too long.
 */
export function addClasses(packets: ProofPackets, { regions }: Classes, random: ProofRandom): void {
  for (const { owner, sourceFirst, sourceLast, destinationFirst, destinationLast, keys } of regions) {
    if (packets.exhausted) return;
    for (const { low, high, major, minor } of keys) {
      const lastField = lastOfFields(high);
      for (const [at, firstMajor] of major.entries()) {
        const lastMajor = endOf(major, at, lastField);
        for (const [place, firstMinor] of minor.entries()) {
          const lastMinor = endOf(minor, place, lastField);
          packets.add(sourceFirst, destinationFirst, low, firstMajor, firstMinor, owner);
          packets.add(sourceLast, destinationLast, high, lastMajor, lastMinor, owner);
          const protocol = random.flip() ? low : high;
          const between = random.within(firstMajor, lastMajor);
          const source = random.flip() ? sourceFirst : sourceLast;
          const destination = random.flip() ? destinationFirst : destinationLast;
          if (owner === NO_OWNER_CELL) {
            packets.add(before(sourceFirst), destination, protocol, between, firstMinor);
            packets.add(behind(sourceLast), destination, protocol, between, lastMinor);
          }
          packets.add(source, before(destinationFirst), protocol, between, firstMinor, owner);
          packets.add(source, behind(destinationLast), protocol, between, lastMinor, owner);
          if (low !== IPPROTO.icmp || minor.length === 1 || packets.count > ENOUGH) continue;
          // Sample every ICMP type, because the compiled tables store the codes of each type separately.
          for (let type = firstMajor + 1; type < lastMajor; type++) {
            packets.add(source, destination, low, type, firstMinor, owner);
            packets.add(source, destination, low, type, lastMinor, owner);
          }
        }
      }
    }
  }
}

/** Returns the previous address. The address before 0.0.0.0 is 255.255.255.255. */
const before = (address: number): number => (address === 0 ? LAST_ADDRESS : address - 1);
const behind = (address: number): number => (address === LAST_ADDRESS ? 0 : address + 1);

/**
 * Finds, for each interval of destinations, the rules with a destination prefix that contains the interval.
 * Returns null if the search needs more than `looks` rule visits.
 */
function rulesByInterval(rules: readonly Rule[], axis: Axis, looks: number): readonly (readonly Rule[])[] | null {
  const found: Rule[][] = axis.map(() => []);
  const places = new Map(axis.map((start, at) => [start, at]));
  let left = looks;
  for (const rule of rules) {
    for (const prefix of ofFamily(rule.destinations, 'ipv4')) {
      const last = lastAddress(prefix);
      for (let at = places.get(prefix.address) ?? axis.length; at < axis.length && itemAt(axis, at) <= last; at++) {
        if (left-- === 0) return null;
        found[at]?.push(rule);
      }
    }
  }
  return found;
}

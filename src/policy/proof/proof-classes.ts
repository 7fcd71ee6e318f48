import { lastAddress, nextAddress, ofFamily, previousAddress } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import { type Family, ICMP, type Policy, type Rule } from '#contracts/policy/policy-model.js';
import { NO_OWNER_CELL } from '#contracts/policy/proof-types.js';
import { affectedSources, isInScope } from '#policy/model/sources/rule-scope.js';
import type { SourceIndex } from '#policy/model/sources/source-index.js';
import { type AddressInterval, addressIntervals, endOf, type KeyAxes, keyAxes, lastOfFields } from './proof-axes.js';
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
   * The number that stands for the owner (Kubernetes object) of the sources in packets. If the sources have
   * no owner, the sample also contains packets just outside the sources.
   */
  readonly owner: number;
  readonly source: AddressInterval;
  readonly destination: AddressInterval;
  readonly keys: readonly KeyAxes[];
};

/**
 * The equivalence classes of a policy: packets of one class match the same rules. `count` is the number of
 * classes in all regions together.
 */
export type Classes = { readonly family: Family; readonly regions: readonly Region[]; readonly count: number };

/**
 * Returns the equivalence classes of a policy. Divides the sources at each bound of a source prefix, then
 * each interval of sources at the destination bounds of its rules. Then divides by protocol, ports, and ICMP
 * types and codes. Returns null if the policy has more than `limit` classes, or if the search visits too many
 * rules.
 */
export function classesOf(
  { groups }: Policy,
  family: Family,
  index: SourceIndex,
  owners: ProofOwners,
  limit: number,
): Classes | null {
  const prefixes = groups.flatMap((group) => affectedSources(group, index.resolution));
  const sources = [
    ...addressIntervals(prefixes, family).map((interval) => ({ ...interval, owner: NO_OWNER_CELL })),
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
    const destinations = addressIntervals(
      rules.flatMap((rule) => rule.destinations),
      family,
    );
    const everywhere = rules.filter((rule) => rule.destinations.length === 0);
    const somewhere = rulesByInterval(rules, family, destinations, MAX_LOOKS - looks);
    looks += groups.length + rules.length + destinations.length * (1 + everywhere.length);
    if (somewhere === null || looks > MAX_LOOKS) return null;
    for (const [place, destination] of destinations.entries()) {
      const keys = keyAxes([...everywhere, ...(somewhere[place] ?? [])], family);
      for (const { major, minor } of keys) count += major.length * minor.length;
      if (count > limit) return null;
      regions.push({ owner, source: { first, last }, destination, keys });
    }
  }
  return { family, regions, count };
}

/**
 * Adds two packets of each equivalence class: one with the first value of every field, and one with the last.
 * Then adds four packets just outside the source and destination bounds of the class. They detect an interval
 * of the compiled tables that is too long.
 */
export function addClasses(packets: ProofPackets, { family, regions }: Classes, random: ProofRandom): void {
  for (const { owner, source: from, destination: to, keys } of regions) {
    if (packets.exhausted) return;
    for (const { low, high, major, minor } of keys) {
      const lastField = lastOfFields(high, family);
      for (const [at, firstMajor] of major.entries()) {
        const lastMajor = endOf(major, at, lastField);
        for (const [place, firstMinor] of minor.entries()) {
          const lastMinor = endOf(minor, place, lastField);
          packets.add(from.first, to.first, low, firstMajor, firstMinor, owner);
          packets.add(from.last, to.last, high, lastMajor, lastMinor, owner);
          const protocol = random.flip() ? low : high;
          const between = random.within(firstMajor, lastMajor);
          const source = random.flip() ? from.first : from.last;
          const destination = random.flip() ? to.first : to.last;
          if (owner === NO_OWNER_CELL) {
            packets.add(previousAddress(from.first), destination, protocol, between, firstMinor);
            packets.add(nextAddress(from.last), destination, protocol, between, lastMinor);
          }
          packets.add(source, previousAddress(to.first), protocol, between, firstMinor, owner);
          packets.add(source, nextAddress(to.last), protocol, between, lastMinor, owner);
          if (low !== ICMP[family] || minor.length === 1 || packets.count > ENOUGH) continue;
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

/**
 * Finds, for each interval of destinations, the rules with a destination prefix that contains the interval.
 * Returns null if the search needs more than `looks` rule visits.
 */
function rulesByInterval(
  rules: readonly Rule[],
  family: Family,
  intervals: readonly AddressInterval[],
  looks: number,
): readonly (readonly Rule[])[] | null {
  const found: Rule[][] = intervals.map(() => []);
  const places = new Map(intervals.map(({ first }, at) => [first, at]));
  let left = looks;
  for (const rule of rules) {
    for (const prefix of ofFamily(rule.destinations, family)) {
      const last = lastAddress(prefix);
      const { length } = intervals;
      for (let at = places.get(prefix.address) ?? length; at < length && itemAt(intervals, at).first <= last; at++) {
        if (left-- === 0) return null;
        found[at]?.push(rule);
      }
    }
  }
  return found;
}

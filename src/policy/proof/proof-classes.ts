import { itemAt } from '#arrays/read.js';
import { IPPROTO, type Policy, type Rule } from '#contracts/policy-model.js';
import { lastAddress } from '#policy/model/ipv4.js';
import { isInScope, scopeOf } from '#policy/model/source-scope.js';
import { type Axis, addressAxis, endOf, type KeyAxes, keyAxes, LAST_ADDRESS, lastOfFields } from './proof-axes.js';
import type { ProofPackets } from './proof-packets.js';
import type { ProofRandom } from './random-numbers.js';

/**
 * The limit of rule visits while `classesOf` counts equivalence classes. Above it, the policy has too many
 * classes to count.
 */
const MAX_LOOKS = 1 << 21;
/** The number of packets after which `addClasses` omits the additional packets for ICMP types. */
const ENOUGH = 1 << 16;

/** Equivalence classes that have the same interval of sources and the same interval of destinations. */
type Region = {
  readonly sourceFirst: number;
  readonly sourceLast: number;
  readonly destinationFirst: number;
  readonly destinationLast: number;
  readonly keys: readonly KeyAxes[];
};

/**
 * The equivalence classes of a policy, grouped by their sources and destinations. `count` is the number of
 * classes.
 */
export type Classes = { readonly regions: readonly Region[]; readonly count: number };

/**
 * Returns the equivalence classes of a policy. Intervals of sources are divided by destination, then by
 * protocol, ports, types and codes, at each bound of an applicable rule. Returns null if the policy has more
 * than `limit` classes.
 */
export function classesOf({ groups }: Policy, limit: number): Classes | null {
  const sources = addressAxis(groups.flatMap((group) => group.sources));
  const regions: Region[] = [];
  let count = 0;
  let looks = 0;
  for (const [at, sourceFirst] of sources.entries()) {
    const rules = groups.flatMap((group) => {
      const scope = scopeOf(group, sourceFirst);
      return scope === 'all' ? group.rules : group.rules.filter(({ action }) => isInScope(scope, action));
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
        sourceFirst,
        sourceLast: endOf(sources, at, LAST_ADDRESS),
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
 * Then adds four packets just outside its source and destination bounds. These packets detect a compiled
 * interval that is too long.
 */
export function addClasses(packets: ProofPackets, { regions }: Classes, random: ProofRandom): void {
  for (const { sourceFirst, sourceLast, destinationFirst, destinationLast, keys } of regions) {
    if (packets.exhausted) return;
    for (const { low, high, major, minor } of keys) {
      const lastField = lastOfFields(high);
      for (const [at, firstMajor] of major.entries()) {
        const lastMajor = endOf(major, at, lastField);
        for (const [place, firstMinor] of minor.entries()) {
          const lastMinor = endOf(minor, place, lastField);
          packets.add(sourceFirst, destinationFirst, low, firstMajor, firstMinor);
          packets.add(sourceLast, destinationLast, high, lastMajor, lastMinor);
          const protocol = random.flip() ? low : high;
          const between = random.within(firstMajor, lastMajor);
          const source = random.flip() ? sourceFirst : sourceLast;
          const destination = random.flip() ? destinationFirst : destinationLast;
          packets.add(before(sourceFirst), destination, protocol, between, firstMinor);
          packets.add(behind(sourceLast), destination, protocol, between, lastMinor);
          packets.add(source, before(destinationFirst), protocol, between, firstMinor);
          packets.add(source, behind(destinationLast), protocol, between, lastMinor);
          if (low !== IPPROTO.icmp || minor.length === 1 || packets.count > ENOUGH) continue;
          // Sample every ICMP type, because the compiled tables store the codes of each type separately.
          for (let type = firstMajor + 1; type < lastMajor; type++) {
            packets.add(source, destination, low, type, firstMinor);
            packets.add(source, destination, low, type, lastMinor);
          }
        }
      }
    }
  }
}

/** Returns the previous address; the address before 0.0.0.0 is 255.255.255.255. */
const before = (address: number): number => (address === 0 ? LAST_ADDRESS : address - 1);
const behind = (address: number): number => (address === LAST_ADDRESS ? 0 : address + 1);

/**
 * For each interval of destinations, finds the rules with destinations that contain the interval. Returns
 * null if this needs more than `looks` rule visits.
 */
function rulesByInterval(rules: readonly Rule[], axis: Axis, looks: number): readonly (readonly Rule[])[] | null {
  const found: Rule[][] = axis.map(() => []);
  const places = new Map(axis.map((start, at) => [start, at]));
  let left = looks;
  for (const rule of rules) {
    for (const prefix of rule.destinations) {
      const last = lastAddress(prefix);
      for (let at = places.get(prefix.address) ?? axis.length; at < axis.length && itemAt(axis, at) <= last; at++) {
        if (left-- === 0) return null;
        found[at]?.push(rule);
      }
    }
  }
  return found;
}

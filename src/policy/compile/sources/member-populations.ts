import { familyOf, lastAddress, ofFamily } from '#addresses/ip-address.js';
import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u32At } from '#arrays/read.js';
import { EMPTY_SET } from '#contracts/kubernetes/member-tables.js';
import type { ListedMembership, SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { IntervalPool, Intervals } from '#contracts/policy/interval-map.js';
import type { Address, Family, Policy } from '#contracts/policy/policy-model.js';
import type { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';
import { mergedRanges, valueAt } from '#policy/model/intervals.js';
import {
  addressesWithSets,
  type GroupSets,
  groupSetsOf,
  type SelectorGroups,
} from '#policy/model/sources/group-sets.js';
import type { GroupViews } from './group-views.js';
import { type Populations, repeats } from './source-populations.js';

/**
 * The keys that stand for source addresses in the tables of a family: IPv4 addresses, or numbers of address
 * classes. `end`: the number after the last key.
 */
export type SourcePoints = {
  readonly family: Family;
  readonly pointOf: (address: Address) => number;
  readonly end: number;
};

/**
 * Adds the populations (sources with the same groups) that depend on members (addresses that Kubernetes
 * objects own). `bases` has the populations of sources that no selector selects.
 * - A deny-only population has the groups of a base, and the deny rules of every group with resolved
 *   selectors. It applies to sources without an owner in a network of pods.
 * - A merged population has the groups of a base, and the groups whose selectors select a member of this
 *   base. There is one for each pair of base and set of groups that occurs among the members. All other pairs
 *   use the deny-only population until the next compilation.
 */
export function withMembers(
  views: GroupViews,
  bases: Populations,
  selectors: SelectorGroups,
  membership: ListedMembership,
  points: SourcePoints,
  budget: Budget,
): Populations {
  const groups = bases.groups.copy(budget);
  const merged = merger(views.policy, groups, budget);
  const denyOnly = new Uint32Array(bases.groups.count);
  for (let base = 0; base < denyOnly.length; base++) denyOnly[base] = merged(base, views.denyOnly);
  const basesOfSources = { starts: bases.starts.trimmed(), values: bases.numbers.trimmed() };
  const { sets, ofSelectorSets } = groupSetsOf(selectors, membership);
  const pairs = occurringPairs(basesOfSources, ofSelectorSets, membership, points);
  const added = sets.map((set) => Uint32Array.from(set, (group) => u32At(views.whole, group)));
  const trees = new TreeWriter();
  const pairOffsets = new GrowingUint32Array();
  const pairIndexes = new GrowingUint32Array();
  pairOffsets.push(0);
  for (let base = 0; base < denyOnly.length; base++) {
    const byDefault = u32At(denyOnly, base);
    trees.begin(byDefault);
    trees.put(EMPTY_SET, base);
    for (const set of pairs.get(base) ?? []) {
      if (set === 0) continue;
      trees.put(EMPTY_SET + set, merged(base, itemAt(added, set)));
      pairIndexes.push(EMPTY_SET + set);
    }
    trees.end();
    pairOffsets.push(pairIndexes.length);
  }
  return {
    ...withPodNetworks(bases, denyOnly, membership.scope, points),
    groups,
    members: {
      selectors,
      sets,
      bases: basesOfSources,
      trees: trees.pool(),
      pairs: { offsets: pairOffsets.trimmed(), indexes: pairIndexes.trimmed() },
    },
  };
}

/**
 * Returns a function that merges further groups into the groups of a set of sources without Kubernetes
 * selectors (base), and returns the number of the resulting set of sources (population). Like every
 * population, it ends with the first group that has a default action.
 */
function merger(policy: Policy, groups: Sequences, budget: Budget): (base: number, added: Uint32Array) => number {
  const result = new GrowingUint32Array();
  return (base, added) => {
    if (added.length === 0) return base;
    const end = groups.end(base);
    budget.steps(end - groups.start(base) + added.length);
    result.length = 0;
    for (let own = groups.start(base), at = 0; own < end || at < added.length; ) {
      const next = own < end ? u32At(groups.cells.array, own) : Number.POSITIVE_INFINITY;
      const other = added[at] ?? Number.POSITIVE_INFINITY;
      const group = Math.min(next, other);
      if (next === group) own += 1;
      if (other === group) at += 1;
      if (result.length > 0 && repeats(policy, u32At(result.array, result.length - 1), group)) continue;
      result.push(group);
      if (policy.groups[group]?.defaultAction !== undefined) break;
    }
    return groups.intern(result.array, 0, result.length);
  };
}

/**
 * Returns, for each base (population without selectors) with members, the ascending indexes of the sets of
 * groups that select these members.
 */
function occurringPairs(
  bases: Intervals,
  ofSelectorSets: GroupSets['ofSelectorSets'],
  membership: ListedMembership,
  { family, pointOf }: SourcePoints,
): ReadonlyMap<number, readonly number[]> {
  const found = new Map<number, Set<number>>();
  for (const [address, number] of addressesWithSets(membership)) {
    const set = ofSelectorSets.get(number);
    if (set === undefined || familyOf(address) !== family) continue;
    const base = valueAt(bases, pointOf(address));
    const known = found.get(base);
    if (known === undefined) found.set(base, new Set([set]));
    else known.add(set);
  }
  return new Map([...found].map(([base, own]) => [base, [...own].sort((left, right) => left - right)]));
}

/** Gives each source in a network of pods the deny-only population (see `withMembers`) of its base. */
function withPodNetworks(
  { starts, numbers }: Populations,
  denyOnly: Uint32Array,
  resolution: SelectorResolution,
  { family, pointOf, end: endOfSources }: SourcePoints,
): Pick<Populations, 'starts' | 'classStarts' | 'numbers'> {
  const networks = mergedRanges(
    ofFamily(resolution.podNetworks, family).map((prefix) => ({
      low: pointOf(prefix.address),
      high: pointOf(lastAddress<Address>(prefix)),
    })),
  );
  const cutStarts = new GrowingUint32Array();
  const cutNumbers = new GrowingUint32Array();
  const put = (start: number, number: number): void => {
    if (cutNumbers.length > 0 && cutNumbers.array[cutNumbers.length - 1] === number) return;
    cutStarts.push(start);
    cutNumbers.push(number);
  };
  let network = 0;
  for (let at = 0; at < starts.length; at++) {
    const base = u32At(numbers.array, at);
    const end = at + 1 < starts.length ? u32At(starts.array, at + 1) : endOfSources;
    for (let from = u32At(starts.array, at); from < end; ) {
      while ((networks[network]?.high ?? endOfSources) < from) network += 1;
      const { low, high } = networks[network] ?? { low: endOfSources, high: endOfSources };
      const isIn = low <= from;
      put(from, isIn ? u32At(denyOnly, base) : base);
      from = Math.min(end, isIn ? high + 1 : low);
    }
  }
  return { starts: cutStarts, classStarts: null, numbers: cutNumbers };
}

/**
 * Writes the interval maps from the index of a set of groups to a population (sources with the same groups).
 */
class TreeWriter {
  readonly #starts = new GrowingUint32Array();
  readonly #values = new GrowingUint32Array();
  readonly #offsets = new GrowingUint32Array();
  #byDefault = 0;
  #next = 0;

  constructor() {
    this.#offsets.push(0);
  }

  begin(byDefault: number): void {
    this.#byDefault = byDefault;
    this.#next = 0;
  }

  /**
   * Sets the population (number of a set of rule lists) of the addresses that the selectors of the group set
   * `index` select. Call it with ascending indexes. An index without a call gets the population of `begin`.
   */
  put(index: number, population: number): void {
    if (index > this.#next) this.#add(this.#next, this.#byDefault);
    this.#add(index, population);
    this.#next = index + 1;
  }

  end(): void {
    this.#add(this.#next, this.#byDefault);
    this.#offsets.push(this.#starts.length);
  }

  pool(): IntervalPool {
    return { starts: this.#starts.trimmed(), values: this.#values.trimmed(), offsets: this.#offsets.trimmed() };
  }

  #add(start: number, population: number): void {
    const isFirst = this.#starts.length === this.#offsets.array[this.#offsets.length - 1];
    if (!isFirst && this.#values.array[this.#values.length - 1] === population) return;
    this.#starts.push(start);
    this.#values.push(population);
  }
}

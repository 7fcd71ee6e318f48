import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u32At } from '#arrays/read.js';
import type { MemberTables, MemberTrees } from '#contracts/kubernetes/member-tables.js';
import type { Intervals } from '#contracts/policy/interval-map.js';
import type { Family, Policy } from '#contracts/policy/policy-model.js';
import { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';
import type { SelectorGroups } from '#policy/model/sources/group-sets.js';
import type { GroupViews } from './group-views.js';
import { MEMBERS, membership, type PrefixOrder, prefixOrder, walkNesting } from './prefix-nesting.js';

/**
 * The populations of addresses with an owner (a Kubernetes object). The base of an address is its population
 * without selectors. `selectors` and `sets` have indexes of groups of the original policy.
 */
type MemberPopulations = MemberTrees & {
  readonly selectors: SelectorGroups;
  readonly sets: readonly (readonly number[])[];
  readonly pairs: MemberTables['pairs'];
};

/**
 * Source addresses divided into intervals of points (see `PrefixOrder`). A population is the set of all
 * addresses to which the same sequence of groups applies.
 */
export type Populations = {
  readonly starts: GrowingUint32Array;
  /** The first address of each address class that `starts` names; null for IPv4. */
  readonly classStarts: readonly bigint[] | null;
  /**
   * For each interval, the number of its population (addresses with the same groups). The sequence of groups
   * of this population has the same number in `groups`.
   */
  readonly numbers: GrowingUint32Array;
  readonly groups: Sequences;
  /**
   * The populations (by groups) of addresses that Kubernetes objects own; null without resolved selectors.
   */
  readonly members: MemberPopulations | null;
};

/**
 * Divides the source addresses into intervals to which the same groups apply. A population omits a group
 * without rules and default action. It keeps a group that has rules for the other family alone, because they
 * decide DNS lookups. It omits groups after a group with a default action, because no packet reaches them.
 */
export function populations(
  { policy, lookups }: Pick<GroupViews, 'policy' | 'lookups'>,
  family: Family,
  budget: Budget,
): Populations {
  const sources = policy.groups.flatMap((group) => group.sources);
  const order = prefixOrder(sources, family);
  const memberships = membershipsOf(policy, lookups, order);
  budget.ranks(policy.groups.length);
  const groups = new Sequences(budget, 'lists', 1);
  const starts = new GrowingUint32Array();
  const numbers = new GrowingUint32Array();
  const stack = new GrowingUint32Array();
  const bottoms = [0];

  const isRepeated = (group: number, bottom: number): boolean =>
    stack.length > bottom && repeats(policy, u32At(stack.array, stack.length - 1), group);

  const open = (own: readonly number[]): void => {
    let outer = bottoms.at(-1) as number;
    const outerEnd = stack.length;
    budget.steps(outerEnd - outer + own.length);
    bottoms.push(outerEnd);
    stack.reserve(outerEnd - outer + own.length);
    for (let at = 0; outer < outerEnd || at < own.length; ) {
      const inherited = outer < outerEnd ? u32At(stack.array, outer) : MEMBERS;
      const added = own[at] ?? MEMBERS;
      const group = Math.min(inherited, added);
      if (inherited === group) outer += 1;
      if (added === group) at += 1;
      if (isRepeated(group, outerEnd)) continue;
      stack.push(group);
      if (policy.groups[group]?.defaultAction !== undefined) break;
    }
  };

  walkNesting(order, memberships.sort(), {
    open,
    close() {
      stack.length = bottoms.pop() as number;
    },
    interval(start) {
      const number = groups.intern(stack.array, bottoms.at(-1) as number, stack.length);
      if (numbers.length > 0 && numbers.array[numbers.length - 1] === number) return;
      budget.entries('sources', 1);
      starts.push(start);
      numbers.push(number);
    },
  });
  return { starts, classStarts: order.classStarts, numbers, groups, members: null };
}

/**
 * Whether `group` only repeats the deny rules of the previous group. `viewsOf` inserts, after a group with
 * selectors, a copy with only its deny rules. If both apply to a source, the copy adds nothing.
 */
export function repeats({ groups }: Policy, previous: number, group: number): boolean {
  return previous === group - 1 && (groups[previous]?.selectors.length ?? 0) > 0;
}

/**
 * Returns an interval map from source addresses to elements of `values`. The number of a population is the
 * index of its element.
 */
export function sourceMap(
  { starts, numbers }: Pick<Populations, 'starts' | 'numbers'>,
  values: GrowingUint32Array,
): Intervals {
  const keptStarts = new GrowingUint32Array();
  const keptValues = new GrowingUint32Array();
  for (let at = 0; at < starts.length; at++) {
    const value = u32At(values.array, u32At(numbers.array, at));
    if (keptValues.length > 0 && keptValues.array[keptValues.length - 1] === value) continue;
    keptStarts.push(u32At(starts.array, at));
    keptValues.push(value);
  }
  return { starts: keptStarts.trimmed(), values: keptValues.trimmed() };
}

function membershipsOf({ groups }: Policy, lookups: GroupViews['lookups'], order: PrefixOrder): Float64Array {
  const memberships = new Float64Array(groups.reduce((sum, { sources }) => sum + sources.length, 0));
  let count = 0;
  for (const [group, { sources, defaultAction }] of groups.entries()) {
    if (itemAt(lookups, group).rules.length === 0 && defaultAction === undefined) continue;
    for (const source of sources) memberships[count++] = membership(order.numberOf(source), group);
  }
  return memberships.subarray(0, count);
}

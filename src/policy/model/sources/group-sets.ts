import { AddressMap } from '#addresses/address-map.js';
import { itemAt, u32At } from '#arrays/read.js';
import {
  DENY_ONLY_MEMBER,
  type ListedMembership,
  type Membership,
  type SelectorResolution,
  type SelectorSet,
} from '#contracts/kubernetes/membership.js';
import type { Address, Group } from '#contracts/policy/policy-model.js';

/**
 * The sets of groups whose selectors select a member (an address that a Kubernetes object owns). Members with
 * equal sets of groups get the same rules, even if their sets of selectors differ.
 */
export type GroupSets = {
  /**
   * The distinct sets of groups, each as ascending indexes of groups. The first set is empty. The other sets
   * are in lexicographic order, so that equal members of equal policies give equal indexes.
   */
  readonly sets: readonly (readonly number[])[];
  /** Maps the number of a selector set to the index of its set of groups in `sets`. */
  readonly ofSelectorSets: ReadonlyMap<number, number>;
};

/**
 * The resolved selectors of groups with rules. Maps the key of a selector to the indexes of its groups, in
 * ascending order.
 */
export type SelectorGroups = ReadonlyMap<string, readonly number[]>;

export function selectorGroups(groups: readonly Group[], { resolved }: SelectorResolution): SelectorGroups {
  const found = new Map<string, number[]>();
  for (const [index, { selectors, rules, defaultAction }] of groups.entries()) {
    if (rules.length === 0 && defaultAction === undefined) continue;
    for (const { key } of selectors) {
      if (!resolved.has(key)) continue;
      const known = found.get(key);
      if (known === undefined) found.set(key, [index]);
      else if (known.at(-1) !== index) known.push(index);
    }
  }
  return found;
}

/** Returns the ascending indexes of the groups that have a selector of this set. */
export function groupsOfSet({ keys }: Pick<SelectorSet, 'keys'>, known: SelectorGroups): readonly number[] {
  const found = new Set<number>();
  for (const key of keys) for (const group of known.get(key) ?? []) found.add(group);
  return [...found].sort((left, right) => left - right);
}

/**
 * Yields each member with the number of its selector set, and each set that no member has now with the
 * address that had it last.
 */
export function* addressesWithSets(membership: ListedMembership): Generator<readonly [address: Address, set: number]> {
  const { list, former } = membership;
  for (const { addresses, sets } of former === undefined ? [list] : [list, former])
    for (let at = 0; at < addresses.length; at++) yield [itemAt(addresses, at), u32At(sets, at)];
}

/** Returns the sets of groups that select present or former members. */
export function groupSetsOf(known: SelectorGroups, membership: ListedMembership): GroupSets {
  const { list } = membership;
  const occurring = new Set<number>();
  for (const [, set] of addressesWithSets(membership)) occurring.add(set);
  const found = new Map<string, { readonly groups: readonly number[]; readonly numbers: number[] }>();
  found.set('', { groups: [], numbers: [] });
  for (const set of list.added) {
    if (!occurring.has(set.number)) continue;
    const groups = groupsOfSet(set, known);
    const key = groups.join(' ');
    const same = found.get(key);
    if (same === undefined) found.set(key, { groups, numbers: [set.number] });
    else same.numbers.push(set.number);
  }
  const sorted = [...found.values()].sort((left, right) => compare(left.groups, right.groups));
  return {
    sets: sorted.map(({ groups }) => groups),
    ofSelectorSets: new Map(sorted.flatMap(({ numbers }, index) => numbers.map((number) => [number, index] as const))),
  };
}

/**
 * Returns a copy of selector resolution (which selectors are resolved) and members (addresses that selectors
 * select) for the reference evaluator. Later changes of the members do not affect the copy.
 */
export function membershipOf({ scope: resolution, list }: ListedMembership): Membership {
  const { added, addresses, sets } = list;
  const byNumber = new Map(added.map((set) => [set.number, set]));
  const owned = new AddressMap<SelectorSet>();
  for (let at = 0; at < addresses.length; at++)
    owned.set(itemAt(addresses, at), byNumber.get(u32At(sets, at)) ?? DENY_ONLY_MEMBER);
  return { resolution, members: { setOf: (address) => owned.get(address) } };
}

function compare(left: readonly number[], right: readonly number[]): number {
  for (let at = 0; at < left.length && at < right.length; at++) {
    const difference = (left[at] ?? 0) - (right[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

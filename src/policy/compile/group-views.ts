import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Prefix, Rule } from '#contracts/policy-model.js';

/**
 * The groups as `compile` processes them. A group with Kubernetes selectors becomes two groups: the original
 * group for the sources that it lists, and a copy with only its deny rules for every source (D19a). A deny
 * rule has the same rank in both groups.
 */
export type GroupViews = {
  /**
   * A policy with the groups to compile: each original group, and for a group with selectors also a copy with
   * only its deny rules. If no group has selectors, this is the original policy object.
   */
  readonly policy: Policy;
  /** For each group of `policy`, the index of its group in the original policy. */
  readonly groups: Uint32Array;
  /**
   * For each group of `policy`, the index of each of its rules in the original group. Null if the group has
   * all rules of the original group.
   */
  readonly places: readonly (Uint32Array | null)[];
};

const EVERY_SOURCE: readonly Prefix[] = [{ address: 0, length: 0 }];

export function viewsOf(policy: Policy): GroupViews {
  if (!policy.groups.some(({ dynamic }) => dynamic)) {
    return { policy, groups: Uint32Array.from(policy.groups.keys()), places: policy.groups.map(() => null) };
  }
  const views: Group[] = [];
  const groups: number[] = [];
  const places: (Uint32Array | null)[] = [];
  for (const [number, group] of policy.groups.entries()) {
    views.push(group);
    groups.push(number);
    places.push(null);
    if (!group.dynamic) continue;
    const denies = deniesOf(group.rules);
    const defaultAction = group.defaultAction === 'deny' ? 'deny' : undefined;
    views.push({ ...group, sources: EVERY_SOURCE, dynamic: false, rules: denies.rules, defaultAction });
    groups.push(number);
    places.push(denies.places);
  }
  return { policy: { ...policy, groups: views }, groups: Uint32Array.from(groups), places };
}

type Denies = { readonly rules: readonly Rule[]; readonly places: Uint32Array };

/**
 * Maps the rule list of a group to its deny rules. `deniesOf` must return the same list object for the same
 * rule list each time, because `CompileMemory` finds cached rule blocks by list identity.
 */
const known = new WeakMap<readonly Rule[], Denies>();

function deniesOf(rules: readonly Rule[]): Denies {
  const found = known.get(rules);
  if (found !== undefined) return found;
  const places = Uint32Array.from([...rules.keys()].filter((place) => rules[place]?.action === 'deny'));
  const denies = { rules: Array.from(places, (place) => itemAt(rules, place)), places };
  known.set(rules, denies);
  return denies;
}

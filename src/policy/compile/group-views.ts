import type { Group, Policy, Prefix, Rule } from '#contracts/policy-model.js';

/**
 * The groups as they are compiled. A group with unresolved selectors is two: all its rules for its static sources, then
 * its denies for every source (D19a), which is not dynamic. A deny that stands in both has the same rank in both.
 */
export type GroupViews = {
  /** The policy itself where no group is dynamic. */
  readonly policy: Policy;
  /** View → number of its group. */
  readonly groups: Uint32Array;
  /** View → the place in the group of each of its rules; null where the view has all of them. */
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

/** The same list for the same rules, so that what was compiled of it is found again. */
const known = new WeakMap<readonly Rule[], Denies>();

function deniesOf(rules: readonly Rule[]): Denies {
  const found = known.get(rules);
  if (found !== undefined) return found;
  const places = Uint32Array.from([...rules.keys()].filter((place) => rules[place]?.action === 'deny'));
  const denies = { rules: Array.from(places, (place) => rules[place] as Rule), places };
  known.set(rules, denies);
  return denies;
}

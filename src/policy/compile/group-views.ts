import type { Group, Policy, Prefix, Rule } from '#contracts/policy-model.js';

/**
 * The groups as they are compiled. A group with unresolved selectors has two views: all its rules for its
 * static sources, and its denies for every source (D19a). A deny has the same rank in both views.
 */
export type GroupViews = {
  /** The original policy if no group is dynamic. */
  readonly policy: Policy;
  /** For each view the index of its group. */
  readonly groups: Uint32Array;
  /** For each view the index in the group of each of its rules; null if the view has all of them. */
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

/** Returns the same list object for the same rules, so that the compile memory finds it again. */
const known = new WeakMap<readonly Rule[], Denies>();

function deniesOf(rules: readonly Rule[]): Denies {
  const found = known.get(rules);
  if (found !== undefined) return found;
  const places = Uint32Array.from([...rules.keys()].filter((place) => rules[place]?.action === 'deny'));
  const denies = { rules: Array.from(places, (place) => rules[place] as Rule), places };
  known.set(rules, denies);
  return denies;
}

import { itemAt } from '#arrays/read.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Group, Policy, Prefix, Rule } from '#contracts/policy/policy-model.js';
import { areResolved, staticSources } from '#policy/model/sources/rule-scope.js';

/**
 * The groups as `compile` processes them. A group with Kubernetes selectors becomes two groups: the original
 * group, and a copy with only its deny rules. The sources of the original group are its prefixes and the
 * networks of its selectors. The sources of the copy are all addresses while a selector is not resolved
 * (D19a), and none otherwise. A deny rule has the same rank in both groups.
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
  /** For each group of the original policy, the index in `policy` of the group with all its rules. */
  readonly whole: Uint32Array;
  /**
   * The groups of `policy` that apply to a deny-only source (D38a) in addition to those that apply to every
   * source: copies with the deny rules of groups whose selectors are resolved.
   */
  readonly denyOnly: Uint32Array;
};

const EVERY_SOURCE: readonly Prefix[] = [{ address: 0, length: 0 }];
const NO_SOURCE: readonly Prefix[] = [];

export function viewsOf(policy: Policy, resolution: SelectorResolution): GroupViews {
  if (!policy.groups.some(({ selectors }) => selectors.length > 0)) {
    const groups = Uint32Array.from(policy.groups.keys());
    return { policy, groups, places: policy.groups.map(() => null), whole: groups, denyOnly: new Uint32Array(0) };
  }
  const views: Group[] = [];
  const groups: number[] = [];
  const places: (Uint32Array | null)[] = [];
  const whole: number[] = [];
  const denyOnly: number[] = [];
  for (const [number, group] of policy.groups.entries()) {
    whole.push(views.length);
    const sources = staticSources(group, resolution);
    views.push(sources === group.sources ? group : { ...group, sources });
    groups.push(number);
    places.push(null);
    if (group.selectors.length === 0) continue;
    const denies = deniesOf(group.rules);
    const defaultAction = group.defaultAction === 'deny' ? 'deny' : undefined;
    const isOpen = !areResolved(group.selectors, resolution);
    if (!isOpen && (denies.rules.length > 0 || defaultAction !== undefined)) denyOnly.push(views.length);
    views.push({
      ...group,
      sources: isOpen ? EVERY_SOURCE : NO_SOURCE,
      selectors: [],
      rules: denies.rules,
      defaultAction,
    });
    groups.push(number);
    places.push(denies.places);
  }
  return {
    policy: { ...policy, groups: views },
    groups: Uint32Array.from(groups),
    places,
    whole: Uint32Array.from(whole),
    denyOnly: Uint32Array.from(denyOnly),
  };
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

import { EVERY_ADDRESS, ofFamily } from '#addresses/ip-address.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Family, Group, Policy, Prefix } from '#contracts/policy/policy-model.js';
import { deniesOf, deniesOfFamily, type Part, rulesOfFamily } from '#policy/model/sources/family-rules.js';
import { areResolved, staticSources } from '#policy/model/sources/rule-scope.js';

/**
 * The groups as `compile` processes them for one family. They have only the prefixes of this family, and only
 * the rules that can match its packets. A group with Kubernetes selectors becomes two groups: the original
 * group, and a copy with only its deny rules. The sources of the original group are its prefixes and the
 * networks of its selectors. The sources of the copy are all addresses while a selector is not resolved
 * (D19a), and none otherwise. A deny rule has the same rank (position in the policy) in both groups.
 */
export type GroupViews = {
  /**
   * A policy with the groups to compile: each original group, and for a group with selectors also a copy with
   * only its deny rules. If nothing differs, this is the original policy object.
   */
  readonly policy: Policy;
  /** For each group of `policy`, the index of its group in the original policy. */
  readonly groups: Uint32Array;
  /**
   * For each group of `policy`, the index of each of its rules in the original group. Null if the group has
   * all rules of the original group.
   */
  readonly places: readonly (Uint32Array | null)[];
  /**
   * For each group of `policy`, the rules that decide DNS lookups: those of all families, because a lookup is
   * about the addresses of both.
   */
  readonly lookups: readonly Part[];
  /**
   * For each group of the original policy, the index in `policy` of the view that has all rules of the group.
   */
  readonly whole: Uint32Array;
  /**
   * The groups of `policy` that apply to a deny-only source (D38a) in addition to those that apply to every
   * source: copies with the deny rules of groups whose selectors are resolved.
   */
  readonly denyOnly: Uint32Array;
};

const NO_SOURCE: readonly Prefix[] = [];

export function viewsOf(policy: Policy, resolution: SelectorResolution, family: Family): GroupViews {
  const views: Group[] = [];
  const groups: number[] = [];
  const places: (Uint32Array | null)[] = [];
  const lookups: Part[] = [];
  const whole: number[] = [];
  const denyOnly: number[] = [];
  for (const [number, group] of policy.groups.entries()) {
    whole.push(views.length);
    const sources = ofFamily(staticSources(group, resolution), family);
    const own = rulesOfFamily(group.rules, family);
    const isWhole = sources === group.sources && own.rules === group.rules;
    views.push(isWhole ? group : { ...group, sources, rules: own.rules });
    groups.push(number);
    places.push(own.places);
    lookups.push({ rules: group.rules, places: null });
    if (group.selectors.length === 0) continue;
    const denies = deniesOfFamily(group.rules, family);
    const defaultAction = group.defaultAction === 'deny' ? 'deny' : undefined;
    const isOpen = !areResolved(group.selectors, resolution);
    const lookup = deniesOf(group.rules);
    if (!isOpen && (lookup.rules.length > 0 || defaultAction !== undefined)) denyOnly.push(views.length);
    views.push({
      ...group,
      sources: isOpen ? EVERY_ADDRESS[family] : NO_SOURCE,
      selectors: [],
      rules: denies.rules,
      defaultAction,
    });
    groups.push(number);
    places.push(denies.places);
    lookups.push(lookup);
  }
  const isSame = views.length === policy.groups.length && views.every((view, at) => view === policy.groups[at]);
  return {
    policy: isSame ? policy : { ...policy, groups: views },
    groups: Uint32Array.from(groups),
    places,
    lookups,
    whole: Uint32Array.from(whole),
    denyOnly: Uint32Array.from(denyOnly),
  };
}

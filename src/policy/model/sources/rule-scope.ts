import { covers, EVERY_ADDRESS } from '#addresses/ip-address.js';
import { DENY_ONLY_MEMBER, type Membership, type SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Action, Address, Group, Prefix, Selector } from '#contracts/policy/policy-model.js';

/** This file decides which rules of a source group apply to a source address. */

/** The rules of a group that apply to a source: all rules, or only the deny rules. */
export type RuleScope = 'all' | 'denies';

type Sources = Pick<Group, 'sources' | 'selectors'>;

/**
 * Returns which rules of a group apply to a source; null if no rule applies. All rules apply if a prefix of
 * the group or a network of its selectors contains the source, or if a resolved selector selects it.
 * Otherwise only the deny rules apply to some sources: to all while a selector of the group is not resolved
 * (D19a), to addresses with the set `DENY_ONLY_MEMBER`, and to sources without an owner in a network of
 * pods (D38a). No rule applies to other sources.
 */
export function ruleScopeOf(
  { sources, selectors }: Sources,
  source: Address,
  { resolution, members }: Membership,
): RuleScope | null {
  if (staticSources({ sources, selectors }, resolution).some((prefix) => covers(prefix, source))) return 'all';
  if (selectors.length === 0) return null;
  const set = members.setOf(source);
  if (selectors.some(({ key }) => resolution.resolved.has(key) && set?.keys.includes(key) === true)) return 'all';
  if (!areResolved(selectors, resolution)) return 'denies';
  const isDenyOnly = set === undefined ? isInPodNetwork(resolution, source) : set.number === DENY_ONLY_MEMBER.number;
  return isDenyOnly ? 'denies' : null;
}

/** Returns the first selector of a group that selects a source; undefined if no selector selects it. */
export function selectorFor(
  { selectors }: Pick<Group, 'selectors'>,
  source: Address,
  { resolution, members }: Membership,
): Selector | undefined {
  const keys = members.setOf(source)?.keys ?? [];
  return selectors.find(
    ({ key }) =>
      resolution.resolved.has(key) &&
      (keys.includes(key) || resolution.networks.get(key)?.some((prefix) => covers(prefix, source)) === true),
  );
}

/** Returns the prefixes whose addresses belong to a group whether or not a Kubernetes object owns them. */
export function staticSources({ sources, selectors }: Sources, { networks }: SelectorResolution): readonly Prefix[] {
  if (networks.size === 0 || selectors.length === 0) return sources;
  const selected = selectors.flatMap(({ key }) => networks.get(key) ?? []);
  return selected.length === 0 ? sources : [...sources, ...selected];
}

/** Whether all selectors of a group are resolved. True if the group has no selectors. */
export function areResolved(selectors: Group['selectors'], { resolved }: SelectorResolution): boolean {
  return selectors.every(({ key }) => resolved.has(key));
}

/**
 * Whether a source is in a network of pods, where an address without an owner gets only the deny rules of
 * groups with selectors.
 */
export function isInPodNetwork({ podNetworks }: SelectorResolution, source: Address): boolean {
  return podNetworks.some((prefix) => covers(prefix, source));
}

export function hasDenies({ rules, defaultAction }: Pick<Group, 'rules' | 'defaultAction'>): boolean {
  if (defaultAction === 'deny') return true;
  let found = denying.get(rules);
  if (found === undefined) {
    found = rules.some(({ action }) => action === 'deny');
    denying.set(rules, found);
  }
  return found;
}

const denying = new WeakMap<Group['rules'], boolean>();

/** Whether a rule or default with this action is among the rules that `scope` names (all, or denies only). */
export function isInScope(scope: RuleScope | null, action: Action): boolean {
  return scope === 'all' || (scope === 'denies' && action === 'deny');
}

/**
 * Returns the prefixes of all sources without an owner to which at least one rule of the group can apply. For
 * a group with selectors, they include all addresses while a selector is not resolved, and otherwise the
 * networks of pods.
 */
export function affectedSources({ sources, selectors }: Sources, resolution: SelectorResolution): readonly Prefix[] {
  if (selectors.length === 0) return sources;
  const further = areResolved(selectors, resolution) ? resolution.podNetworks : EVERY_SOURCE;
  return [...staticSources({ sources, selectors }, resolution), ...further];
}

const EVERY_SOURCE: readonly Prefix[] = [...EVERY_ADDRESS.ipv4, ...EVERY_ADDRESS.ipv6];

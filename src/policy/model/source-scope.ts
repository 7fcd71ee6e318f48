import { CLOSED_MEMBER, type Membership, type SelectorScope } from '#contracts/membership.js';
import type { Action, Group, Prefix, Selector } from '#contracts/policy-model.js';
import { covers } from './prefix-covers.js';

/** Which rules of a group apply to a source: all rules, or only deny rules. */
export type Scope = 'all' | 'denies';

type Sources = Pick<Group, 'sources' | 'selectors'>;

/**
 * Returns which rules of a group apply to a source; null if no rule applies. All rules apply if a prefix of
 * the group or a network of its selectors contains the source, or if a resolved selector of the group selects
 * it. Otherwise the deny rules apply to every source while a selector of the group is not resolved (D19a), to
 * each `CLOSED_MEMBER`, and to each source without an owner in a closed network (D38a).
 */
export function scopeOf({ sources, selectors }: Sources, source: number, membership: Membership): Scope | null {
  const { scope, members } = membership;
  if (staticSources({ sources, selectors }, scope).some((prefix) => covers(prefix, source))) return 'all';
  if (selectors.length === 0) return null;
  const set = members.setOf(source);
  if (selectors.some(({ key }) => scope.resolved.has(key) && set?.keys.includes(key) === true)) return 'all';
  if (!isResolved(selectors, scope)) return 'denies';
  const closes = set === undefined ? isClosed(scope, source) : set.number === CLOSED_MEMBER.number;
  return closes ? 'denies' : null;
}

/** Returns the first selector of a group that selects a source; undefined if none does. */
export function selectorFor(
  { selectors }: Pick<Group, 'selectors'>,
  source: number,
  { scope, members }: Membership,
): Selector | undefined {
  const keys = members.setOf(source)?.keys ?? [];
  return selectors.find(
    ({ key }) =>
      scope.resolved.has(key) &&
      (keys.includes(key) || scope.networks.get(key)?.some((prefix) => covers(prefix, source)) === true),
  );
}

/** Returns the prefixes whose addresses are in a group whatever the members are. */
export function staticSources({ sources, selectors }: Sources, { networks }: SelectorScope): readonly Prefix[] {
  if (networks.size === 0 || selectors.length === 0) return sources;
  const selected = selectors.flatMap(({ key }) => networks.get(key) ?? []);
  return selected.length === 0 ? sources : [...sources, ...selected];
}

/** Whether two scopes have equal content. */
export function isSameScope(one: SelectorScope, other: SelectorScope): boolean {
  if (one === other) return true;
  return (
    one.resolved.size === other.resolved.size &&
    one.networks.size === other.networks.size &&
    [...one.resolved].every((key) => other.resolved.has(key)) &&
    [...one.networks].every(([key, networks]) => isSamePrefixes(networks, other.networks.get(key) ?? [])) &&
    isSamePrefixes(one.closed, other.closed)
  );
}

function isSamePrefixes(one: readonly Prefix[], other: readonly Prefix[]): boolean {
  return (
    one.length === other.length &&
    one.every(({ address, length }, at) => address === other[at]?.address && length === other[at]?.length)
  );
}

/** Whether all selectors of a group are resolved. True if the group has no selectors. */
export function isResolved(selectors: Group['selectors'], { resolved }: SelectorScope): boolean {
  return selectors.every(({ key }) => resolved.has(key));
}

/** Whether a source is in a closed network, where an address without an owner gets no rights by selectors. */
export function isClosed({ closed }: SelectorScope, source: number): boolean {
  return closed.some((prefix) => covers(prefix, source));
}

/** Whether at least one rule or the default of a group denies. */
export function hasDenies({ rules, defaultAction }: Pick<Group, 'rules' | 'defaultAction'>): boolean {
  if (defaultAction === 'deny') return true;
  let found = denying.get(rules);
  if (found === undefined) {
    found = rules.some(({ action }) => action === 'deny');
    denying.set(rules, found);
  }
  return found;
}

/** Caches for lists of rules whether one of them denies. */
const denying = new WeakMap<Group['rules'], boolean>();

/** Whether a rule or default with this action applies to a source with this scope. */
export function isInScope(scope: Scope | null, action: Action): boolean {
  return scope === 'all' || (scope === 'denies' && action === 'deny');
}

/**
 * Returns the prefixes of all sources without an owner to which at least one rule of the group can apply. For
 * a group with selectors, they include every address while a selector is not resolved, and else the closed
 * networks.
 */
export function affectedSources({ sources, selectors }: Sources, scope: SelectorScope): readonly Prefix[] {
  if (selectors.length === 0) return sources;
  const further = isResolved(selectors, scope) ? scope.closed : [EVERY_SOURCE];
  return [...staticSources({ sources, selectors }, scope), ...further];
}

const EVERY_SOURCE: Prefix = { address: 0, length: 0 };

import type { Action, Group, Prefix } from '#contracts/policy-model.js';
import { covers } from './prefix-covers.js';

/** Which rules of a group apply to a source: all rules, or only deny rules. */
export type Scope = 'all' | 'denies';

/**
 * Returns which rules of a group apply to a source; null if no rule applies. Weir does not resolve Kubernetes
 * selectors yet, so a selector may stand for any address. For a source outside `sources`, only the deny rules
 * of a group with selectors apply (D19a).
 */
export function scopeOf({ sources, dynamic }: Pick<Group, 'sources' | 'dynamic'>, source: number): Scope | null {
  if (sources.some((prefix) => covers(prefix, source))) return 'all';
  return dynamic ? 'denies' : null;
}

/** Whether a rule or default with this action applies to a source with this scope. */
export function isInScope(scope: Scope | null, action: Action): boolean {
  return scope === 'all' || (scope === 'denies' && action === 'deny');
}

/**
 * Returns the prefixes of all sources to which at least one rule of the group can apply. For a group with
 * selectors, they include every address.
 */
export function affectedSources({ sources, dynamic }: Pick<Group, 'sources' | 'dynamic'>): readonly Prefix[] {
  return dynamic ? [...sources, EVERY_SOURCE] : sources;
}

const EVERY_SOURCE: Prefix = { address: 0, length: 0 };

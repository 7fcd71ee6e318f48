import type { Action, Group, Prefix } from '#contracts/policy-model.js';
import { covers } from './prefix-covers.js';

/** The rules of a group that apply to a source: all, or only the denies. */
export type Scope = 'all' | 'denies';

/**
 * The scope of a group for a source; null if no rule of the group applies. A selector that was never resolved
 * may select any address: for a source that is not among the static ones, the denies of the group match and
 * its allows do not (D19a).
 */
export function scopeOf({ sources, dynamic }: Pick<Group, 'sources' | 'dynamic'>, source: number): Scope | null {
  if (sources.some((prefix) => covers(prefix, source))) return 'all';
  return dynamic ? 'denies' : null;
}

/** Whether a rule or default with this action is part of a scope. */
export function isInScope(scope: Scope | null, action: Action): boolean {
  return scope === 'all' || (scope === 'denies' && action === 'deny');
}

/** The sources to which at least a part of a group applies. */
export function affectedSources({ sources, dynamic }: Pick<Group, 'sources' | 'dynamic'>): readonly Prefix[] {
  return dynamic ? [...sources, EVERY_SOURCE] : sources;
}

const EVERY_SOURCE: Prefix = { address: 0, length: 0 };

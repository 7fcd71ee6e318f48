import type { Action, Group, Prefix } from '#contracts/policy-model.js';
import { covers } from './prefix-covers.js';

/** Which rules of a group judge a source: all of them, or the denies alone. */
export type Scope = 'all' | 'denies';

/**
 * How a group stands to a source; null where it does not judge it. A selector that was never resolved may select any
 * address: for a source that is not among the static ones, the group's denies match and its allows do not (D19a).
 */
export function scopeOf({ sources, dynamic }: Pick<Group, 'sources' | 'dynamic'>, source: number): Scope | null {
  if (sources.some((prefix) => covers(prefix, source))) return 'all';
  return dynamic ? 'denies' : null;
}

/** Whether a rule or default with this action is part of a scope. */
export function isInScope(scope: Scope | null, action: Action): boolean {
  return scope === 'all' || (scope === 'denies' && action === 'deny');
}

/** The sources that at least a part of a group judges. */
export function judgedSources({ sources, dynamic }: Pick<Group, 'sources' | 'dynamic'>): readonly Prefix[] {
  return dynamic ? [...sources, EVERY_SOURCE] : sources;
}

const EVERY_SOURCE: Prefix = { address: 0, length: 0 };

import { covers, overlapPrefixes, overlaps } from './coverage.js';
import type { Group, Policy, Rule } from './model.js';

/** A deny under audit, and the enforced deny behind it: a later rule, or the default of a group. */
export type AuditOverlap = { readonly rule: Rule; readonly by: Rule | Group };

const COMPARISONS = 1_000_000;

/** Denies under audit that let pass what an enforced deny would drop. Very large policies are searched in part. */
export function auditOverlaps({ groups }: Policy): AuditOverlap[] {
  const found: AuditOverlap[] = [];
  const enforcing = groups.flatMap((group, index) => (hasEnforcedDeny(group) ? [index] : []));
  const lastEnforcing = enforcing.at(-1) ?? -1;
  let comparisons = 0;

  const behind = (rule: Rule, at: number, place: number): Rule | Group | undefined => {
    for (let index = at; index <= lastEnforcing; index++) {
      const group = groups[index] as Group;
      if (++comparisons > COMPARISONS) return undefined;
      if (index !== at && !overlapPrefixes(group.sources, (groups[at] as Group).sources)) continue;
      for (let other = index === at ? place + 1 : 0; other < group.rules.length; other++) {
        const later = group.rules[other] as Rule;
        if (++comparisons > COMPARISONS) return undefined;
        if (isEnforcedDeny(later) && overlaps(rule, later)) return later;
        if (later.action === 'allow' && index === at && covers(later, rule)) return undefined;
      }
      if (group.defaultAction === 'deny' && group.mode === 'enforce') return group;
      if (group.defaultAction !== undefined && index === at) return undefined;
    }
    return undefined;
  };

  for (let index = 0; index <= lastEnforcing; index++) {
    for (const [place, rule] of (groups[index] as Group).rules.entries()) {
      if (rule.action !== 'deny' || rule.mode !== 'audit' || rule.tls !== undefined) continue;
      const by = behind(rule, index, place);
      if (by !== undefined) found.push({ rule, by });
    }
  }
  return found;
}

function hasEnforcedDeny({ rules, defaultAction, mode }: Group): boolean {
  return (defaultAction === 'deny' && mode === 'enforce') || rules.some(isEnforcedDeny);
}

function isEnforcedDeny({ action, mode, tls }: Rule): boolean {
  return action === 'deny' && mode === 'enforce' && tls === undefined;
}

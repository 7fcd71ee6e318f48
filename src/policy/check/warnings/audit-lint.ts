import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { factsOfGroups } from '#policy/evaluate/rule-facts.js';
import { containsAll, covers, overlapPrefixes, overlaps } from '#policy/model/rules/rule-coverage.js';

/** The number of comparisons after which each function of this file stops. */
const COMPARISONS = 1_000_000;

/**
 * A warning. `pointer` is the JSON pointer of a deny rule in audit mode. `behind` is the name of the enforced
 * deny that would drop the same packets: a later rule, or the default of a group.
 */
export type AuditOverlap = { readonly pointer: string; readonly behind: string };

/**
 * Finds deny rules in audit mode that pass packets which a later enforced deny would drop. Stops after
 * `COMPARISONS` comparisons, so the result for a very large policy may be incomplete.
 */
export function auditOverlaps({ groups }: Policy): AuditOverlap[] {
  const found: AuditOverlap[] = [];
  const facts = factsOfGroups(groups);
  if (!facts.some(({ auditDenies }) => auditDenies.length > 0)) return found;
  const enforcing = groups.flatMap(({ defaultAction, mode }, index) =>
    (defaultAction === 'deny' && mode === 'enforce') || facts[index]?.hasEnforcedDeny === true ? [index] : [],
  );
  const lastEnforcing = enforcing.at(-1) ?? -1;
  let comparisons = 0;

  const behind = (rule: Rule, at: number, place: number): string | undefined => {
    for (let index = at; index <= lastEnforcing; index++) {
      const group = itemAt(groups, index);
      if (++comparisons > COMPARISONS) return undefined;
      if (index !== at && !haveCommonSource(group, itemAt(groups, at))) continue;
      for (let other = index === at ? place + 1 : 0; other < group.rules.length; other++) {
        const later = itemAt(group.rules, other);
        if (++comparisons > COMPARISONS) return undefined;
        if (isEnforcedDeny(later) && overlaps(rule, later)) return group.pointer + later.pointer;
        if (later.action === 'allow' && index === at && covers(later, rule)) return undefined;
      }
      if (group.defaultAction === 'deny' && group.mode === 'enforce') return `the default of ${group.pointer}`;
      if (group.defaultAction !== undefined && index === at) return undefined;
    }
    return undefined;
  };

  for (let index = 0; index <= lastEnforcing; index++) {
    const { rules, pointer } = itemAt(groups, index);
    for (const place of facts[index]?.auditDenies ?? []) {
      const rule = itemAt(rules, place);
      const enforced = behind(rule, index, place);
      if (enforced !== undefined) found.push({ pointer: pointer + rule.pointer, behind: enforced });
    }
  }
  return found;
}

/**
 * Whether a source address can belong to both groups. A group with selectors may share sources with every
 * group, because a selector may resolve to any address.
 */
function haveCommonSource(one: Group, other: Group): boolean {
  const isOpen = one.selectors.length + other.selectors.length > 0;
  return isOpen || overlapPrefixes(one.sources, other.sources);
}

function isEnforcedDeny({ action, mode, tls }: Rule): boolean {
  return action === 'deny' && mode === 'enforce' && tls === undefined;
}

/**
 * A warning. `pointer` is the JSON pointer of a group in audit mode. `to` is the name of the enforced default
 * that denies packets which match no rule of the group.
 */
type FallThrough = { readonly pointer: string; readonly to: string };

/**
 * Finds groups in audit mode without a default action whose unmatched packets reach an enforced default deny.
 * Stops after `COMPARISONS` comparisons of source prefixes, so the result for a very large policy may be
 * incomplete.
 */
export function auditFallThroughs({ groups, default: last }: Policy): FallThrough[] {
  const found: FallThrough[] = [];
  const facts = factsOfGroups(groups);
  let comparisons = 0;

  const deniedBy = (group: Group, index: number): string | undefined => {
    for (let at = index + 1; at < groups.length; at++) {
      const later = itemAt(groups, at);
      comparisons += 1 + group.sources.length * later.sources.length;
      if (comparisons > COMPARISONS) return undefined;
      if (later.defaultAction === 'deny' && later.mode === 'enforce' && overlapPrefixes(later.sources, group.sources))
        return `the default of ${later.pointer}`;
      const closes = later.defaultAction !== undefined || facts[at]?.hasCatchAll === true;
      if (closes && containsAll(later.sources, group.sources)) return undefined;
    }
    if (last.action !== 'deny' || last.mode !== 'enforce') return undefined;
    return last.from === 'default_policy' ? 'default_policy' : 'policy.fallback';
  };

  for (const [index, group] of groups.entries()) {
    if (group.mode !== 'audit' || group.defaultAction !== undefined || facts[index]?.hasCatchAll === true) continue;
    const to = deniedBy(group, index);
    if (to !== undefined) found.push({ pointer: group.pointer, to });
  }
  return found;
}

import { itemAt } from '#arrays/read.js';
import type { Group, Policy } from '#contracts/policy-model.js';
import { factsOfGroups } from '#policy/evaluate/rule-facts.js';
import { containsAll, overlapPrefixes } from '#policy/model/rule-coverage.js';

/**
 * A warning. `pointer` is the JSON pointer of a group under audit. `to` names the enforced default that
 * denies the packets which match no rule of the group.
 */
export type FallThrough = { readonly pointer: string; readonly to: string };

const COMPARISONS = 1_000_000;

/**
 * Finds groups under audit without a default action whose unmatched packets reach an enforced default deny.
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

import { itemAt } from '#arrays/read.js';
import type { Group } from '#contracts/policy/policy-model.js';

/**
 * The difference between two lists of groups. The first `from` groups are equal. The groups from index
 * `before` of the first list equal the groups from index `after` of the second list.
 */
export type GroupChange = { readonly from: number; readonly before: number; readonly after: number };

/**
 * Finds the difference between two lists of groups. Compares the `rules` and `sources` of two groups by
 * object identity: a write of one group reuses these arrays of all other groups.
 */
export function groupChange(before: readonly Group[], after: readonly Group[]): GroupChange {
  const shorter = Math.min(before.length, after.length);
  let from = 0;
  while (from < shorter && isAlike(before[from], after[from])) from++;
  let behind = 0;
  while (behind < shorter - from && isAlike(before.at(-1 - behind), after.at(-1 - behind))) behind++;
  return { from, before: before.length - behind, after: after.length - behind };
}

/** Returns whether two groups are equal apart from their positions in the document. */
function isAlike(one: Group | undefined, other: Group | undefined): boolean {
  return (
    one?.rules === other?.rules &&
    one?.sources === other?.sources &&
    one?.selectors === other?.selectors &&
    one?.id === other?.id &&
    one?.mode === other?.mode &&
    one?.defaultAction === other?.defaultAction
  );
}

/**
 * Returns the number of ranks (positions in the policy) in the groups with indexes `from` … `to` - 1. Each
 * rule and each group default has one rank.
 */
export function ranksOf(groups: readonly Group[], from: number, to: number): number {
  let ranks = 0;
  for (let group = from; group < to; group++) {
    const { rules, defaultAction } = itemAt(groups, group);
    ranks += rules.length + (defaultAction === undefined ? 0 : 1);
  }
  return ranks;
}

import type { Group } from '#contracts/policy-model.js';

/**
 * Where two lists of groups differ: the first `from` groups are alike, and so are the groups from `before` in
 * the first list and from `after` in the second list to the end.
 */
export type GroupChange = { readonly from: number; readonly before: number; readonly after: number };

/**
 * Compares rules and sources by object identity. That is sufficient because a write of one group reuses the
 * objects of the others.
 */
export function groupChange(before: readonly Group[], after: readonly Group[]): GroupChange {
  const shorter = Math.min(before.length, after.length);
  let from = 0;
  while (from < shorter && isAlike(before[from], after[from])) from++;
  let behind = 0;
  while (behind < shorter - from && isAlike(before.at(-1 - behind), after.at(-1 - behind))) behind++;
  return { from, before: before.length - behind, after: after.length - behind };
}

/** Ignores the position in the document. */
function isAlike(one: Group | undefined, other: Group | undefined): boolean {
  return (
    one?.rules === other?.rules &&
    one?.sources === other?.sources &&
    one?.dynamic === other?.dynamic &&
    one?.id === other?.id &&
    one?.mode === other?.mode &&
    one?.defaultAction === other?.defaultAction
  );
}

/** The number of ranks of the groups `from` to `to`, the end excluded. */
export function ranksOf(groups: readonly Group[], from: number, to: number): number {
  let ranks = 0;
  for (let group = from; group < to; group++) {
    const { rules, defaultAction } = groups[group] as Group;
    ranks += rules.length + (defaultAction === undefined ? 0 : 1);
  }
  return ranks;
}

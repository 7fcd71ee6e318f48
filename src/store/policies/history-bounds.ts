import type { PolicyRow } from './policy-row.js';
import { factsOf } from './revision-facts.js';

/** How many revisions of policies are kept (`policy.history`). */
export type HistoryBounds = {
  /** The largest number of revisions of one policy. */
  readonly revisions: number;
  /** The largest sum of the bytes that the revisions of all policies have added to the store. */
  readonly bytes: number;
};

export const DEFAULT_BOUNDS: HistoryBounds = { revisions: 1_000, bytes: 2 ** 30 };

/** The number of newest revisions of each policy that are always kept. */
export const ALWAYS_KEPT = 10;

/** A revision in the history. `at`: the time of its write; null if its record cannot be read. */
export type ListedRevision = {
  readonly key: string;
  readonly policy: string;
  readonly revision: number;
  readonly at: string | null;
  /** The name of the policy at this revision; null if it has none, or if its record cannot be read. */
  readonly name: string | null;
  /** The bytes that the write has added to the store; 0 if an older build wrote the revision. */
  readonly bytes: number;
};

/**
 * Returns the revision with the key `key` in its store, and the key `local` in the local store of a node.
 * `row`: its record; undefined if the record cannot be read.
 */
export function listedRevision(key: string, local: string, row: PolicyRow | undefined): ListedRevision {
  const bytes = row === undefined ? 0 : (factsOf(row).bytes ?? 0);
  return { ...placeInHistory(local), key, at: row?.updated_at ?? null, name: row?.name ?? null, bytes };
}

/** The revisions that stay. `needed`: their keys. `former`: those that assertions compare with. */
export type KeptRevisions = {
  readonly needed: Iterable<string>;
  readonly former: readonly FormerRevision[];
  /** Returns the present name of a policy; null if it has none. */
  readonly nameOf: (policy: string) => string | null;
};

/** Returns the keys of the revisions beyond the bounds that nothing needs. */
export function oldRevisions(
  revisions: readonly ListedRevision[],
  { needed, former, nameOf }: KeptRevisions,
  bounds: HistoryBounds,
): ReadonlySet<string> {
  return beyondBounds(revisions, new Set([...needed, ...keysOfFormer(revisions, former, nameOf)]), bounds);
}

/**
 * Returns the keys of the revisions beyond the bounds: the oldest ones of each policy, then the oldest ones
 * of all policies. The newest `ALWAYS_KEPT` of each policy, and those in `needed`, are never among them.
 */
export function beyondBounds(
  revisions: readonly ListedRevision[],
  needed: ReadonlySet<string>,
  { revisions: most, bytes: mostBytes }: HistoryBounds,
): ReadonlySet<string> {
  const byPolicy = new Map<string, ListedRevision[]>();
  for (const listed of revisions) {
    const own = byPolicy.get(listed.policy);
    if (own === undefined) byPolicy.set(listed.policy, [listed]);
    else own.push(listed);
  }
  const beyond = new Set<string>();
  const removable: { readonly key: string; readonly at: string; readonly bytes: number }[] = [];
  let bytes = 0;
  for (const own of byPolicy.values()) {
    own.sort((one, other) => one.revision - other.revision);
    // A clock may have been set back, but the revisions of a policy must be removed in their order.
    let latest = '';
    for (const [index, { key, at, bytes: added }] of own.entries()) {
      if (at !== null && at > latest) latest = at;
      const isRemovable = index < own.length - ALWAYS_KEPT && !needed.has(key);
      if (isRemovable && index < own.length - most) {
        beyond.add(key);
        continue;
      }
      bytes += added;
      if (isRemovable && at !== null) removable.push({ key, at: latest, bytes: added });
    }
  }
  // The sort is stable, so revisions with equal times keep their order.
  removable.sort((one, other) => (one.at < other.at ? -1 : Number(one.at > other.at)));
  for (const { key, bytes: added } of removable) {
    if (bytes <= mostBytes) break;
    beyond.add(key);
    bytes -= added;
  }
  return beyond;
}

/** A revision that an assertion compares with. `policy`: id or name; undefined for any policy. */
export type FormerRevision = { readonly revision: number; readonly policy?: string | undefined };

/**
 * Returns the keys of the revisions with which assertions compare. `nameOf`: the present name of a policy. If
 * an assertion contains no policy name, keeps the revision of every policy, because each policy can be in
 * force.
 */
export function keysOfFormer(
  revisions: readonly ListedRevision[],
  former: readonly FormerRevision[],
  nameOf: (policy: string) => string | null,
): readonly string[] {
  if (former.length === 0) return [];
  const folded = (name: string | null) => name?.trim().toLowerCase();
  return revisions
    .filter(({ policy, revision, name }) =>
      former.some(
        (wanted) =>
          wanted.revision === revision &&
          (wanted.policy === undefined ||
            wanted.policy === policy ||
            [folded(name), folded(nameOf(policy))].includes(folded(wanted.policy))),
      ),
    )
    .map(({ key }) => key);
}

/** Returns the policy and the revision in a key of the history. */
export function placeInHistory(key: string): Pick<ListedRevision, 'policy' | 'revision'> {
  const end = key.lastIndexOf('/');
  return { policy: key.slice('history/'.length, end), revision: Number(key.slice(end + 1)) || 0 };
}

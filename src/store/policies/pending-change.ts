import type { ChangeEnd, PendingChange, PendingWrite } from '#contracts/policy/pending-change.js';
import type { ChangeSize, ItemCounts } from '#contracts/policy/revision.js';
import type { PolicyHead, PolicyRow, PolicyState, StoredChange } from './policy-row.js';
import { factsOf, withFacts } from './revision-facts.js';

/** The policy that a node must enforce. `row`: null if none. */
export type Enforced = { readonly row: PolicyRow | null; readonly generation: number };

/**
 * Returns the policy that the node `node` must enforce. This is the active policy, except
 * - on a node that does not take part in a roll-out yet: the policy before the change;
 * - on a node that reverted the change `revertedHere` by itself: the policy before the change, with the
 *   generation that the change reserves for it.
 */
export function enforcedAt({ head, rows }: PolicyState, node: string, revertedHere: string | null): Enforced {
  const { pending, active, generation } = head;
  if (pending?.terms.kind === 'rollout' && !pending.terms.nodes.includes(node)) return pending.before;
  if (pending !== undefined && pending.id === revertedHere)
    return { row: pending.before.row, generation: pending.generation + 1 };
  return { row: active === null ? null : (rows.get(active) ?? null), generation };
}

/**
 * Returns the highest generation that the head (record of the last commit) has or reserves. A pending change
 * reserves two generations: the first for the former policy, if the change is reverted, and the second for
 * the new policy, if the change is completed.
 */
export function reservedGeneration({ generation, pending }: PolicyHead): number {
  return pending === undefined ? generation : generation + 2;
}

/**
 * Returns the pending change after a write; undefined if there is none. A write that changes the policy in
 * force ends the present pending change. If the write itself is a pending change, its revert restores the
 * last confirmed policy.
 */
export function pendingAfter(
  { head, rows }: PolicyState,
  write: PendingWrite | undefined,
  next: { readonly generation: number; readonly commit: string },
): StoredChange | undefined {
  if (next.generation === head.generation) return head.pending;
  if (write === undefined) return undefined;
  const row = head.active === null ? null : (rows.get(head.active) ?? null);
  const before = head.pending?.before ?? { generation: head.generation, row };
  return { id: next.commit, generation: next.generation, before, ...write };
}

/**
 * The head (generation, active policy, last commit) after the end of a pending change, and the policy record
 * to write; null if no record changes.
 */
export type Settled = { readonly head: PolicyHead; readonly row: PolicyRow | null };

/**
 * Returns the head (record of the last commit) and the policy record after the end of a pending change, with
 * a higher generation.
 */
export function settled({ head, rows }: PolicyState, end: ChangeEnd, pending: StoredChange): Settled {
  const { pending: _, reverted: __, ...kept } = head;
  const commit = { sequence: (head.sequence ?? 0) + 1, commit: crypto.randomUUID() };
  if (end.outcome === 'complete') {
    // Skip one generation, because nodes that reverted the change by themselves use it.
    return { head: { ...kept, ...commit, generation: head.generation + 2 }, row: null };
  }
  const { row } = pending.before;
  const next = row === null ? null : restored(row, rows, end, head.generation + 1);
  const isRenamed = next !== null && next.name !== row?.name;
  const lost = isRenamed ? `; another policy has the name ${JSON.stringify(row?.name)} now, so this one has none` : '';
  const reverted = { generation: head.generation, at: end.at, reason: `${end.reason}${lost}` };
  const back = { ...kept, ...commit, generation: head.generation + 1, active: row?.id ?? null, reverted };
  return { head: back, row: next };
}

/**
 * Returns the record of the former policy as a new revision. If the change did not write this policy, because
 * it made another policy active, returns the present record with a new activation.
 */
function restored(row: PolicyRow, rows: PolicyState['rows'], end: ChangeEnd, generation: number): PolicyRow {
  const { at, by, comment } = end;
  const present = rows.get(row.id);
  const said = comment === undefined ? {} : { comment };
  if (present?.revision === row.revision)
    return withFacts(present, { ...factsOf(present), activated: { by, at, ...said, generation } });
  const isTaken = [...rows.values()].some(
    ({ id, name }) => id !== row.id && name !== null && name.trim().toLowerCase() === row.name?.trim().toLowerCase(),
  );
  const next = {
    ...row,
    name: isTaken ? null : row.name,
    revision: Math.max(present?.revision ?? 0, row.revision) + 1,
    updated_at: at,
    updated_by: by,
  };
  const size = present?.revision === row.revision + 1 ? inverse(factsOf(present).size) : undefined;
  const written = { via: 'revert' as const, of_revision: row.revision, bytes: 0, generation };
  return withFacts(next, { ...written, ...said, ...(size && { size }) });
}

/** Returns the size of the change that undoes a change: added and removed are exchanged. */
function inverse(size: ChangeSize | undefined): ChangeSize | undefined {
  const of = ({ added, changed, removed }: ItemCounts): ItemCounts => ({ added: removed, changed, removed: added });
  return size && { groups: of(size.groups), rules: of(size.rules), other: size.other };
}

/** Returns a pending change without the stored record of the former policy. */
export function withoutRow({ before: { generation }, ...change }: StoredChange): PendingChange {
  return { ...change, before: { generation } };
}

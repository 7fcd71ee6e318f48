import type { PendingChange, RevertedChange } from '#contracts/policy/pending-change.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';

/**
 * A policy record as the store keeps it. The record has no field `active`, because only `PolicyHead` names
 * the active policy. `body_sha256` is the hash of the list of the parts of the policy text.
 * `facts` are those of the history, see `factsOf`: no schema checks them with the row, because a policy must
 * stay readable if they are not.
 */
export type PolicyRow = Omit<PolicyRecord, 'active'> & { readonly body_sha256: string; readonly facts?: unknown };

/**
 * The state of the policy store that belongs to no single policy: the generation, the id of the active
 * policy, and whether a policy was ever active. `sequence` counts all commits, and `commit` is the id of the
 * last commit; a head that an older build wrote lacks both. `pending` is the change that Weir reverts unless
 * it is confirmed. `reverted` is the last change that Weir reverted; the next write that changes the policy
 * in force removes it.
 */
export type PolicyHead = {
  readonly generation: number;
  readonly active: string | null;
  readonly ever_activated: boolean;
  readonly sequence?: number;
  readonly commit?: string;
  readonly pending?: StoredChange;
  readonly reverted?: RevertedChange;
};

/**
 * A pending change with the policy that comes in force when the change is reverted. `row`: null if no policy
 * was active before the change.
 */
export type StoredChange = PendingChange & {
  readonly before: { readonly generation: number; readonly row: PolicyRow | null };
};

/**
 * The policy records in memory. Each commit replaces this object as a whole, so that a concurrent read never
 * combines old and new values.
 */
export type PolicyState = { readonly head: PolicyHead; readonly rows: ReadonlyMap<string, PolicyRow> };

export function rowOf(record: PolicyRecord, bodySha256: string): PolicyRow {
  const { id, name, form, mode, revision, created_at, updated_at, updated_by } = record;
  return { id, name, form, mode, revision, created_at, updated_at, updated_by, body_sha256: bodySha256 };
}

export function recordOf(row: PolicyRow, active: boolean): PolicyRecord {
  const { id, name, form, mode, revision, created_at, updated_at, updated_by } = row;
  return { id, name, form, mode, revision, created_at, updated_at, updated_by, active };
}

import type { PolicyRecord } from '#contracts/policy-record.js';

/**
 * A policy record as stored. Which policy is active is stored only in `PolicyHead`. `body_sha256` is the hash
 * of the list of parts of the policy's body.
 */
export type PolicyRow = Omit<PolicyRecord, 'active'> & { readonly body_sha256: string };

/**
 * The part of the store's state that belongs to no single policy: the generation and the id of the active
 * policy.
 */
export type PolicyHead = {
  readonly generation: number;
  readonly active: string | null;
  readonly ever_activated: boolean;
};

export function rowOf(record: PolicyRecord, bodySha256: string): PolicyRow {
  const { id, name, form, mode, revision, created_at, updated_at, updated_by } = record;
  return { id, name, form, mode, revision, created_at, updated_at, updated_by, body_sha256: bodySha256 };
}

export function recordOf(row: PolicyRow, active: boolean): PolicyRecord {
  const { id, name, form, mode, revision, created_at, updated_at, updated_by } = row;
  return { id, name, form, mode, revision, created_at, updated_at, updated_by, active };
}

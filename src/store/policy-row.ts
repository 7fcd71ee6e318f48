import type { PolicyRecord } from '#contracts/policy-record.js';

/**
 * A record as stored. The active one is named by the head only; the body is stored in parts, whose list has
 * this hash.
 */
export type PolicyRow = Omit<PolicyRecord, 'active'> & { readonly body_sha256: string };

/** The state that changes with every commit. */
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

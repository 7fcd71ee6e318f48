import type { EnvelopeMode, Form } from './policy-document.js';

/**
 * A stored policy without its body (D5). The body is the JSON text of the policy, stored as it was sent (D6).
 */
export type PolicyRecord = {
  readonly id: string;
  readonly name: string | null;
  readonly form: Form;
  readonly mode: EnvelopeMode;
  /** Counts the writes of this record from 1. The ETag consists of id and revision. */
  readonly revision: number;
  /** ISO 8601, UTC. */
  readonly created_at: string;
  readonly updated_at: string;
  readonly updated_by: string;
  readonly active: boolean;
};

/** A record with the JSON text of its PolicyConfig (UTF-8). */
export type StoredPolicy = { readonly record: PolicyRecord; readonly body: Uint8Array };

/** Replaces the bytes of a text from `from` to `to`, the end excluded. */
export type TextEdit = { readonly from: number; readonly to: number; readonly text: Uint8Array };

/** The edit of the text of an earlier revision of the same record. */
type BodyEdit = TextEdit & { readonly revision: number };

/** A policy to store: with its text, or with the edit that makes the text from an earlier revision. */
export type PolicyPut = StoredPolicy | { readonly record: PolicyRecord; readonly edit: BodyEdit };

/** The ETag of D8: the same in all views of one revision. */
export function etagOf(record: Pick<PolicyRecord, 'id' | 'revision'> | null): string {
  return record === null ? '"none"' : `"${record.id}.${record.revision}"`;
}

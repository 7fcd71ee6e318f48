import type { EnvelopeMode, Form } from './policy-document.js';

/**
 * The metadata of a stored policy (D5). The body, which is not included, is the JSON text of the policy as
 * the client sent it (D6).
 */
export type PolicyRecord = {
  readonly id: string;
  readonly name: string | null;
  readonly form: Form;
  readonly mode: EnvelopeMode;
  /**
   * The number of writes of this record, starting with 1. The ETag consists of the id and the revision of the
   * record.
   */
  readonly revision: number;
  /** The creation time in ISO 8601, UTC. */
  readonly created_at: string;
  readonly updated_at: string;
  readonly updated_by: string;
  readonly active: boolean;
};

/** A record, and the JSON text of its PolicyConfig in UTF-8. */
export type StoredPolicy = { readonly record: PolicyRecord; readonly body: Uint8Array };

/** An edit of a text: `text` replaces the bytes from offset `from` up to offset `to`, which is excluded. */
export type TextEdit = { readonly from: number; readonly to: number; readonly text: Uint8Array };

/** An edit of the policy text of a record. The offsets refer to the text at `revision`. */
type BodyEdit = TextEdit & { readonly revision: number };

/** A policy to store: its whole text, or an edit that produces the text from an earlier revision. */
export type PolicyPut = StoredPolicy | { readonly record: PolicyRecord; readonly edit: BodyEdit };

/** Returns the ETag of a policy record (D8). All API representations of one revision have the same ETag. */
export function etagOf(record: Pick<PolicyRecord, 'id' | 'revision'> | null): string {
  return record === null ? '"none"' : `"${record.id}.${record.revision}"`;
}

import type { PendingWrite } from './pending-change.js';
import type { EnvelopeMode, Form } from './policy-document.js';
import type { PolicyEvent, RevisionFacts, RevisionOrigin } from './revision.js';

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

/** A revision of a policy. `facts`: how it was written; empty if an older build wrote the revision. */
export type PolicyRevision = PolicyRecord & { readonly facts: RevisionFacts };

/** A revision, and the JSON text of its PolicyConfig in UTF-8. */
export type StoredRevision = { readonly record: PolicyRevision; readonly body: Uint8Array };

/** An edit of a text: `text` replaces the bytes from offset `from` up to offset `to`, which is excluded. */
export type TextEdit = { readonly from: number; readonly to: number; readonly text: Uint8Array };

/** An edit of the policy text of a record. The offsets refer to the text at `revision`. */
type BodyEdit = TextEdit & { readonly revision: number };

/**
 * A policy to store: its whole text, an edit that produces the text from the revision before, or the text of
 * an earlier revision of the policy, which is stored already.
 */
export type PolicyPut =
  | StoredPolicy
  | { readonly record: PolicyRecord; readonly edit: BodyEdit }
  | { readonly record: PolicyRecord; readonly ofRevision: number };

/** The changes that one write makes in the store. The store applies them as one atomic batch. */
export type PolicyChange = {
  /** The policy to write. If its `record.active` is true, the policy becomes the active policy. */
  readonly put?: PolicyPut;
  /** How the policy in `put` was written, for the history. */
  readonly origin?: RevisionOrigin;
  /** The id of a stored policy that becomes active without a change of its content. */
  readonly activate?: string;
  /** The id of the active policy, which stops being active. */
  readonly deactivate?: string;
  /** The id of the policy to remove. Its revisions remain in the history. */
  readonly remove?: string;
  /** Author, time and comment of `activate` or `remove`, for the history. */
  readonly event?: Omit<PolicyEvent, 'generation'>;
  /** If the commit changes the policy in force, it must be confirmed, or it is rolled out in stages. */
  readonly pending?: PendingWrite;
  /**
   * The id of the last commit when the change was prepared, see `headCommit` of the store. It differs at
   * the commit if a pending change has ended in between.
   */
  readonly base?: string;
  /** The revision of the list of assertions with which the change was checked; see `PolicyStore.commit`. */
  readonly assertions?: number;
  readonly generation: number;
};

/** Returns the ETag of a policy record (D8). All API representations of one revision have the same ETag. */
export function etagOf(record: Pick<PolicyRecord, 'id' | 'revision'> | null): string {
  return record === null ? '"none"' : `"${record.id}.${record.revision}"`;
}

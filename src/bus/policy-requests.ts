import type { Form } from '#contracts/policy-document.js';
import type { Problem, Warning } from '#contracts/policy-problem.js';
import type { StoredPolicy } from '#contracts/policy-record.js';
import type { Proof } from '#contracts/proof-types.js';

/** What the API asks of the policy actor. Bodies travel as the bytes that were received. */
export type PolicyTarget =
  | { readonly by: 'active' }
  | { readonly by: 'new' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

export type PolicyWrite = {
  /** `activate` puts a stored record in force without rewriting it (D5). */
  readonly operation: 'put' | 'delete' | 'activate';
  readonly target: PolicyTarget;
  /** The id of the one group that is written; left out, the whole policy is. */
  readonly sourceGroup?: string;
  /** Of the body; a single group has the form of its policy. */
  readonly form: Form;
  /** Empty for `delete` and `activate`. */
  readonly body: Uint8Array;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  /** `?activate=false` stores without activating (D5). */
  readonly activate: boolean;
  readonly dryRun: boolean;
  /** Subject of the token that wrote. */
  readonly author: string;
};

/** Why a write or a read was not done. The API maps each code to one status (docs/errors.md). */
export type Refusal = {
  readonly kind: 'refused';
  readonly code: RefusalCode;
  /** One plain sentence. */
  readonly detail: string;
  readonly problems?: readonly Problem[];
};

export type RefusalCode =
  | 'invalid_body' // 400, does not parse as JSON, duplicate keys, too deep
  | 'invalid_policy' // 400, with problems
  | 'invalid_ca' // 400, with problems
  | 'not_found' // 404
  | 'name_taken' // 409
  | 'would_deactivate' // 409, `?activate=false` on the active record
  | 'cannot_activate' // 409, the stored record is disabled or no longer valid
  | 'integration_in_use' // 409
  | 'already_exists' // 409
  | 'capacity_exceeded' // 409, names limit, need and table (D7)
  | 'precondition_failed' // 412
  | 'proof_failed' // 500, names the packet (B5)
  | 'too_many_questions' // 429, of one subject wait
  | 'too_costly' // 503, a question took longer than it may
  | 'activation_timeout' // 503
  | 'dataplane_unavailable' // 503
  | 'store_unavailable' // 503
  | 'draining' // 503
  | 'feature_unavailable'; // 503, a part that is not running

export type PolicyWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  /** The record, with the text of what was written: the PolicyConfig or the source group; empty where that was removed. */
  readonly stored: StoredPolicy;
  readonly generation: number;
  readonly warnings: readonly Warning[];
  /** Null where nothing came into force, or nothing enforces. */
  readonly proof: Proof | null;
};
export type PolicyDeleted = {
  readonly kind: 'deleted';
  readonly generation: number;
  readonly warnings: readonly Warning[];
};
/** A dry run: everything that a write does before the commit, and what would be stored. */
export type PolicyChecked = {
  readonly kind: 'checked';
  /** As of a write. */
  readonly stored: StoredPolicy;
  readonly warnings: readonly Warning[];
  /** Size of the compiled program, in the lines of its image. */
  readonly programLines: number;
  readonly proof: Proof | null;
};
export type PolicyOutcome = PolicyWritten | PolicyDeleted | PolicyChecked | Refusal;

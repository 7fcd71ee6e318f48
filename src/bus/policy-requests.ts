import type { Form } from '#contracts/policy-document.js';
import type { Problem, Warning } from '#contracts/policy-problem.js';
import type { StoredPolicy } from '#contracts/policy-record.js';
import type { Proof } from '#contracts/proof-types.js';

/** The target of a request of the API to the policy actor. Bodies are passed as the received bytes. */
export type PolicyTarget =
  | { readonly by: 'active' }
  | { readonly by: 'new' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

export type PolicyWrite = {
  /** `activate` activates a stored record without rewriting it (D5). */
  readonly operation: 'put' | 'delete' | 'activate';
  readonly target: PolicyTarget;
  /** The id of the one source group that is written. If omitted, the whole policy is written. */
  readonly sourceGroup?: string;
  /** The form of the body. A single group has the form of its policy. */
  readonly form: Form;
  /** Empty for `delete` and `activate`. */
  readonly body: Uint8Array;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  /** `?activate=false` stores without activating (D5). */
  readonly activate: boolean;
  readonly dryRun: boolean;
  /** The subject of the token of the request. */
  readonly author: string;
};

/** Why a request was not carried out. The API maps each code to one status (docs/errors.md). */
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
  | 'too_many_questions' // 429, too many questions of this subject are waiting
  | 'too_costly' // 503, the question exceeded its time limit
  | 'activation_timeout' // 503
  | 'dataplane_unavailable' // 503
  | 'store_unavailable' // 503
  | 'draining' // 503
  | 'feature_unavailable'; // 503, the part does not run

export type PolicyWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  /**
   * The record with the text that was written: the PolicyConfig or the source group. Empty after a removal.
   */
  readonly stored: StoredPolicy;
  readonly generation: number;
  readonly warnings: readonly Warning[];
  /** Null if nothing was activated, or if no dataplane enforces. */
  readonly proof: Proof | null;
};
export type PolicyDeleted = {
  readonly kind: 'deleted';
  readonly generation: number;
  readonly warnings: readonly Warning[];
};
/** The result of a dry run: all steps of a write before the commit, and the record that it would store. */
export type PolicyChecked = {
  readonly kind: 'checked';
  /** As for a write. */
  readonly stored: StoredPolicy;
  readonly warnings: readonly Warning[];
  /** The size of the compiled program in lines of its image. */
  readonly programLines: number;
  readonly proof: Proof | null;
};
export type PolicyOutcome = PolicyWritten | PolicyDeleted | PolicyChecked | Refusal;

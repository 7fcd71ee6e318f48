import type { ConfigFileProblem } from '#contracts/config-problem-codes.js';
import type { Form } from '#contracts/policy-document.js';
import type { Problem, Warning } from '#contracts/policy-problem.js';
import type { StoredPolicy } from '#contracts/policy-record.js';
import type { Proof } from '#contracts/proof-types.js';

/** The policy record that a write of the API addresses. */
export type PolicyTarget =
  | { readonly by: 'active' }
  | { readonly by: 'new' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

export type PolicyWrite = {
  /**
   * `put` writes a record or a source group, `delete` removes it. `activate` makes a stored record the
   * active one without changing its policy (D5).
   */
  readonly operation: 'put' | 'delete' | 'activate';
  readonly target: PolicyTarget;
  /** The id of the source group that the request writes. If omitted, the request writes the whole policy. */
  readonly sourceGroup?: string;
  /**
   * The form of the body. For a single source group, this is the form of the policy that contains the group.
   */
  readonly form: Form;
  /** The bytes of the request body; empty for `delete` and `activate`. */
  readonly body: Uint8Array;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  /**
   * Whether the written policy also becomes the active policy. With the query `?activate=false`, it is only
   * stored (D5).
   */
  readonly activate: boolean;
  readonly dryRun: boolean;
  /**
   * Whether the write may start watches of Kubernetes objects. False for the dry run of a client that may not
   * change the node: it uses the members that the node knows.
   */
  readonly mayWatch: boolean;
  /** Whether the members of a cluster rehearse the write before its commit. Omitted: they do. */
  readonly rehearse?: boolean;
  /** The members of a cluster that must enforce the write before the response. Omitted: this node. */
  readonly wait?: 'quorum' | 'all';
  /**
   * Makes the write a pending change. `confirm`: it goes back unless it is confirmed in time. `rollout`:
   * about `share` percent of the nodes of the cluster enforce it first, and all nodes after `holdMs`.
   */
  readonly terms?: WriteTerms;
  /** The subject of the API token with which the request was sent. */
  readonly author: string;
};
export type WriteTerms =
  | { readonly kind: 'confirm'; readonly withinMs: number }
  | { readonly kind: 'rollout'; readonly share: number; readonly holdMs: number };

/** The reason why a request was not executed. The API maps each code to one HTTP status (docs/errors.md). */
export type Refusal = {
  readonly kind: 'refused';
  readonly code: RefusalCode;
  /** One sentence that explains the refusal to the operator. */
  readonly detail: string;
  readonly problems?: readonly (Problem | ConfigFileProblem)[];
};

export type RefusalCode =
  | 'invalid_body' // HTTP 400: the body is not JSON, has duplicate keys, or is nested too deeply
  | 'invalid_policy' // HTTP 400: the policy has errors; `problems` lists them
  | 'invalid_ca' // HTTP 400: the intercept CA has errors; `problems` lists them
  | 'not_found' // HTTP 404: the requested record or source group does not exist
  | 'name_taken' // HTTP 409: another policy record has the name
  | 'would_deactivate' // HTTP 409: `?activate=false` is not possible for the active record
  | 'cannot_activate' // HTTP 409: the stored record is disabled or no longer valid
  | 'integration_in_use' // HTTP 409: the active policy uses the integration
  | 'integration_read_only' // HTTP 409: the configuration defines the integration
  | 'policy_not_active' // HTTP 409: the request is possible for the active policy only
  | 'already_exists' // HTTP 409: an object with this id or name exists
  | 'capacity_exceeded' // HTTP 409: the policy is too large; the detail names table, need and limit (D7)
  | 'rollout_in_progress' // HTTP 409: a roll-out must end before the next policy write
  | 'change_pending' // HTTP 409: a change waits for its confirmation, so that no roll-out can begin
  | 'nothing_activated' // HTTP 409: the write changes nothing in force, so that nothing could go back
  | 'no_cluster' // HTTP 409: the configuration of the node has no cluster section
  | 'seal_key_needed' // HTTP 409: a secret can be stored only with `cluster.seal_key_file`
  | 'member_refused' // HTTP 409: a node of the cluster cannot hold the policy; the detail names the node
  | 'invalid_config' // HTTP 409: the configuration file has errors; `problems` lists them
  | 'would_unpolice' // HTTP 409: the reload would end the policing of an existing interface
  | 'reload_failed' // HTTP 503: a part could not apply the new configuration
  | 'write_conflict' // HTTP 409: another node changed the same objects at the same time
  | 'precondition_failed' // HTTP 412: the stored revision is not the expected revision
  | 'proof_failed' // HTTP 500: the proof of the program failed; the detail names the packet (B5)
  | 'too_many_questions' // HTTP 429: too many explain requests of this subject are waiting
  | 'too_costly' // HTTP 503: the explain request exceeded its time limit
  | 'activation_timeout' // HTTP 503: the policy write did not finish in time
  | 'dataplane_unavailable' // HTTP 503: the dataplane cannot stage or activate a program
  | 'store_full' // HTTP 503: the database of etcd is full
  | 'outcome_unknown' // HTTP 503: etcd or the disk did not report whether it applied the write
  | 'store_unavailable' // HTTP 503: the store cannot read or write
  | 'draining' // HTTP 503: the node shuts down
  | 'feature_unavailable'; // HTTP 503: the part that provides the feature does not run

export type PolicyWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  /**
   * The stored record. `body` is the text that was written: the PolicyConfig or the source group. It is
   * empty after a source group was removed.
   */
  readonly stored: StoredPolicy;
  readonly generation: number;
  readonly warnings: readonly Warning[];
  /**
   * The proof of the activated program. Null if the write activated no program, or if the node has no
   * dataplane.
   */
  readonly proof: Proof | null;
  readonly cluster?: CommitInCluster;
};
/** How a cluster committed a write. Omitted on a single node. */
export type CommitInCluster = {
  /** The revision of etcd that contains the write. */
  readonly revision: number;
  /** The members that staged the policy before the commit; null without a rehearsal. */
  readonly nodes: { readonly ready: number; readonly members: number } | null;
};
export type PolicyDeleted = {
  readonly kind: 'deleted';
  readonly generation: number;
  readonly warnings: readonly Warning[];
  readonly cluster?: CommitInCluster;
};
/**
 * The result of a dry run: it performs all steps of a write before the commit, and then returns the record
 * that the write would store.
 */
export type PolicyChecked = {
  readonly kind: 'checked';
  /**
   * The record that the write would store. `body` is the text that it would write: the PolicyConfig or the
   * source group.
   */
  readonly stored: StoredPolicy;
  readonly warnings: readonly Warning[];
  /** The size of the compiled program in cache lines of 64 bytes. */
  readonly programLines: number;
  readonly proof: Proof | null;
};
export type PolicyOutcome = PolicyWritten | PolicyDeleted | PolicyChecked | Refusal;

import type { Assertion, AssertionFailure } from '#contracts/analysis/assertion.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import type { Refusal } from '#contracts/refusal.js';
import type { Form } from './policy-document.js';
import type { Warning } from './policy-problem.js';
import type { PolicyChange, StoredPolicy } from './policy-record.js';
import type { Proof } from './proof-types.js';

export type PolicyTarget =
  | { readonly by: 'active' }
  | { readonly by: 'new' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

export type PolicyWrite = {
  /**
   * `put` writes a record or a source group, `delete` removes it. `activate` makes a stored record the
   * active one without changing its policy (D5). `rollback` writes the document of an earlier revision
   * again.
   */
  readonly operation: 'put' | 'delete' | 'activate' | 'rollback';
  readonly target: PolicyTarget;
  /** The id of the source group that the request writes. If omitted, the request writes the whole policy. */
  readonly sourceGroup?: string;
  /**
   * Whether the body is a bare policy or has name and mode around it. For a source group, the form of its
   * policy.
   */
  readonly form: Form;
  /** The policy or the source group; empty unless the operation is `put`. */
  readonly body: Uint8Array;
  /** The revision whose document `rollback` writes again. */
  readonly revision?: number;
  /** Why the write is made, for the history: 1 to 500 printable characters. */
  readonly comment?: string;
  /** The ids of assertions that the write may break. */
  readonly overrides?: readonly string[];
  /** In a dry run: the assertions to check, in place of the stored list. */
  readonly assertions?: readonly Assertion[];
  /** Whether the policy file makes the write (`policy.file`). */
  readonly fromFile?: boolean;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  /**
   * Whether the written policy also becomes the active policy. With the query `?activate=false`, it is only
   * stored (D5).
   */
  readonly activate: boolean;
  readonly dryRun: boolean;
  /**
   * Whether the write may start watches of Kubernetes objects. False for the dry run of a client that may
   * not change the node; it uses the addresses of pods that are already known.
   */
  readonly mayWatch: boolean;
  /**
   * Whether the members of a cluster stage the write and vote on it before its commit (rehearsal). Default:
   * true.
   */
  readonly rehearse?: boolean;
  /**
   * The members of a cluster that must enforce the write before the response is sent. Default: only this
   * node.
   */
  readonly wait?: 'quorum' | 'all';
  /**
   * Makes the write a pending change. `confirm`: the write is reverted unless it is confirmed in time.
   * `rollout`: about `share` percent of the nodes of the cluster enforce the write first, and all nodes
   * after `holdMs`.
   */
  readonly terms?: WriteTerms;
  /** The subject of the API token with which the request was sent. */
  readonly author: string;
};
export type WriteTerms =
  | { readonly kind: 'confirm'; readonly withinMs: number }
  | { readonly kind: 'rollout'; readonly share: number; readonly holdMs: number };

export type PolicyWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  /** `body`: the written PolicyConfig or source group; empty after a source group was removed. */
  readonly stored: StoredPolicy;
  readonly generation: number;
  readonly warnings: readonly Warning[];
  /**
   * The proof (packets checked in the datapath) of the activated policy. Null if the write activated no
   * policy, or if the node has no dataplane.
   */
  readonly proof: Proof | null;
  readonly cluster?: CommitInCluster;
};
/** How many nodes of a cluster had prepared a write before its commit. Omitted on a single node. */
export type CommitInCluster = {
  /** The revision of etcd that contains the write. */
  readonly revision: number;
  /**
   * The members that staged the policy before the commit; null without a rehearsal (vote of all members
   * before a commit).
   */
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
  /** The record that the write would store. `body`: the PolicyConfig or the source group. */
  readonly stored: StoredPolicy;
  readonly warnings: readonly Warning[];
  /** The size of the compiled program in cache lines of 64 bytes. */
  readonly programLines: number;
  readonly proof: Proof | null;
  /** The change that the write would make in the store. */
  readonly change: PolicyChange;
  /** The flows that the change opens and closes; null if it is not known, or was not computed. */
  readonly diff: PolicyDiff | null;
  /** The assertions that would not hold after the write, and what they would do to it. */
  readonly assertions: readonly AssertionFailure[];
};
export type PolicyOutcome = PolicyWritten | PolicyDeleted | PolicyChecked | Refusal;

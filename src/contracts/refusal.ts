import type { AssertionFailure } from '#contracts/analysis/assertion.js';
import type { ConfigFileProblem } from '#contracts/config/config-problem-codes.js';
import type { Problem } from '#contracts/policy/policy-problem.js';

/** The reason why a request was not executed. The API maps each code to one HTTP status (docs/errors.md). */
export type Refusal = {
  readonly kind: 'refused';
  readonly code: RefusalCode;
  /** One sentence that explains the refusal to the operator. */
  readonly detail: string;
  readonly problems?: readonly (Problem | ConfigFileProblem | ParameterProblem)[];
  /** With the code `assertion_failed`: the assertions that refuse the write. */
  readonly assertions?: readonly AssertionFailure[];
};

/**
 * A problem of a query parameter that only the node can find. `pointer`: the name of the parameter after `?`.
 */
type ParameterProblem = {
  readonly pointer: string;
  readonly code: 'invalid_parameter';
  readonly message: string;
};

export type RefusalCode =
  | 'invalid_query' // HTTP 400: a query parameter names something that does not exist
  | 'invalid_request' // HTTP 400: the body does not have the documented form; `problems` lists what differs
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
  | 'assertion_failed' // HTTP 409: the policy write would break an assertion, or it could not be checked
  | 'capacity_exceeded' // HTTP 409: the policy is too large; the detail names table, need and limit (D7)
  | 'rollout_in_progress' // HTTP 409: a roll-out must end before the next policy write
  | 'change_pending' // HTTP 409: a change waits for its confirmation, so that no roll-out can begin
  | 'nothing_activated' // HTTP 409: the write does not change the policy in force
  | 'no_cluster' // HTTP 409: the configuration of the node has no cluster section
  | 'seal_key_needed' // HTTP 409: a secret can be stored only with `cluster.seal_key_file`
  | 'member_refused' // HTTP 409: a node of the cluster refused the policy; the detail names the node
  | 'invalid_config' // HTTP 409: the configuration file has errors; `problems` lists them
  | 'would_unpolice' // HTTP 409: the reload would end the policing of an existing interface
  | 'would_open' // HTTP 409: with the file of the reload, the policy in force would pass all IPv6
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

export function refusal(code: RefusalCode, detail: string): Refusal {
  return { kind: 'refused', code, detail };
}

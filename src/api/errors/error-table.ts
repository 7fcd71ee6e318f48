import type { RefusalCode } from '#contracts/refusal.js';

/** An error of the management API. */
export type ErrorEntry = {
  readonly status: number;
  readonly title: string;
  readonly when: string;
  readonly remedy: string;
};

const entry = (status: number, title: string, when: string, remedy: string): ErrorEntry => ({
  status,
  title,
  when,
  remedy,
});

/**
 * All errors of the management API. The codes must not change, because clients compare them. `docs/errors.md`
 * is generated from this table.
 */
export const ERRORS = {
  malformed_request: entry(
    400,
    'Malformed request',
    'The input is not valid HTTP, or a header that must be single was sent twice.',
    'Send valid HTTP/1.1, with one Host and at most one Authorization header.',
  ),
  invalid_url: entry(
    400,
    'Invalid URL',
    'The path contains an invalid percent escape, or is not a path.',
    'Encode the path as UTF-8 percent escapes.',
  ),
  invalid_query: entry(
    400,
    'Invalid query',
    'A query parameter is unknown, repeated, or has an invalid value.',
    'Correct the parameters that `problems` names.',
  ),
  invalid_header: entry(
    400,
    'Invalid header',
    'A precondition header or `Weir-Min-Generation` has an invalid value.',
    'Send If-Match as a quoted entity tag or `*`, If-None-Match as `*` on writes, and Weir-Min-Generation as a whole number.',
  ),
  invalid_body: entry(
    400,
    'Invalid body',
    'The body is empty or is not JSON in UTF-8, repeats a key, uses the key `__proto__`, or is nested deeper than 32.',
    'Correct the JSON at the pointer that `problems` names.',
  ),
  invalid_request: entry(
    400,
    'Invalid request',
    'The body is JSON, but does not match the documented schema.',
    'Correct every member that `problems` names.',
  ),
  invalid_policy: entry(
    400,
    'Invalid policy',
    'The policy violates validation rules; nothing was stored.',
    'Correct every problem in `problems`; all of them are listed.',
  ),
  invalid_ca: entry(
    400,
    'Invalid CA',
    'Clients would not accept certificates of this CA, or the key does not match the certificate; nothing was changed.',
    'Correct what `problems` names.',
  ),
  token_in_query: entry(
    400,
    'Token in the query',
    'A token was sent in the query string, where logs would keep it.',
    'Send the token as `Authorization: Bearer TOKEN`, and revoke the token that was sent in the query.',
  ),
  unauthenticated: entry(
    401,
    'Authentication needed',
    'The request has neither a bearer token nor the cookie of a session.',
    'Send `Authorization: Bearer TOKEN`, or sign in.',
  ),
  invalid_token: entry(
    401,
    'Invalid token',
    'The token was not issued by this node or by another node of its cluster, has expired, or was revoked; or the session is not of this node, or has ended.',
    'Ask for a new token (`weir token create`), or sign in again.',
  ),
  invalid_sign_in_code: entry(
    401,
    'Invalid sign-in code',
    'The code of the sign-in link was used already, has expired, or is not of this node.',
    'Open a new link (`weir console`).',
  ),
  forbidden: entry(
    403,
    'Forbidden',
    'The token is valid, but its role does not allow this request.',
    'Use a token with the role `admin`.',
  ),
  peer_unknown: entry(
    403,
    'Peer unknown',
    'The client of the peer listener presents no certificate of a node of the cluster.',
    'Use the management API. If the client is a node, see its check `cluster`.',
  ),
  host_refused: entry(
    403,
    'Host refused',
    'The Host header does not name this node.',
    'Use the address that the node listens on, or add the name to `api.allowed_hosts`.',
  ),
  origin_refused: entry(
    403,
    'Origin refused',
    'A browser sent this request from a page of another origin.',
    'Send it from the origin of the node itself, or from a program.',
  ),
  no_such_path: entry(
    404,
    'No such path',
    'No endpoint has this path.',
    'Look the path up in `/openapi/service-v1.json`.',
  ),
  not_found: entry(
    404,
    'Not found',
    'The path is valid, but this policy, integration, token or intercept CA does not exist.',
    'List the collection to see what exists.',
  ),
  method_not_allowed: entry(
    405,
    'Method not allowed',
    'The path exists, but not with this method.',
    'Use a method of the `Allow` header.',
  ),
  request_timeout: entry(
    408,
    'Request timeout',
    'The request did not arrive in time.',
    'Send the request again, faster.',
  ),
  name_taken: entry(
    409,
    'Name taken',
    'Another policy has this name; names are compared case-insensitively.',
    'Choose another name, or write to the policy with this name.',
  ),
  would_deactivate: entry(
    409,
    'Would deactivate',
    'The policy is active, but `?activate=false` requests to store it without activating it.',
    'Omit `activate=false`, or store the policy under another name.',
  ),
  cannot_activate: entry(
    409,
    'Cannot activate',
    'The mode of the stored policy is `disabled`, or the policy names an integration that does not exist any more.',
    'Write the policy with the mode `audit` or `enforce`, and correct every problem in `problems`.',
  ),
  already_exists: entry(409, 'Already exists', 'The resource exists already.', 'Replace it with PUT.'),
  integration_in_use: entry(
    409,
    'Integration in use',
    'The active policy uses this integration.',
    'Write a policy that does not use it, then delete the integration.',
  ),
  integration_read_only: entry(
    409,
    'Integration read-only',
    'The configuration of the node defines this integration in `kubernetes.in_cluster`; nothing was changed.',
    'Use another name, or change the configuration of the node.',
  ),
  policy_not_active: entry(
    409,
    'Policy not active',
    'The request is possible for the active policy only.',
    'Activate the policy, or send the request for the active policy.',
  ),
  assertion_failed: entry(
    409,
    'Assertion failed',
    'The policy in force after the write would break an assertion, or an assertion could not be checked in time; nothing was changed. `assertions` has each of them, with flows that contradict it.',
    'Change the policy, or name the assertions in `?override=ID`, which the history of the policy records. If an assertion could not be checked, a longer `policy.activation_timeout` gives the check more time.',
  ),
  capacity_exceeded: entry(
    409,
    'Capacity exceeded',
    'The compiled policy needs more entries of a table than the dataplane has; nothing was changed.',
    'Make the policy smaller; `detail` names the table, the need and the limit.',
  ),
  sysdump_running: entry(
    409,
    'Support dump running',
    'A support dump is being collected already; only one can be collected at a time.',
    'Wait until it is complete, then try again.',
  ),
  rollout_in_progress: entry(
    409,
    'Roll-out in progress',
    'A policy change is being rolled out, and no other policy write is possible meanwhile; nothing was changed.',
    'Wait until the roll-out has ended, or end it with `weir policy confirm` or `weir policy revert`.',
  ),
  change_pending: entry(
    409,
    'Change pending',
    'A policy change is pending, or the pending change has another generation than the request names. While a change is pending, no roll-out can begin, and no integration can be removed; nothing was changed.',
    'Look at it with `weir policy pending`; confirm it with `weir policy confirm`, or revert it with `weir policy revert`.',
  ),
  nothing_activated: entry(
    409,
    'Nothing activated',
    'The write does not change the policy in force, so there would be nothing to roll out or revert; nothing was changed.',
    'Send the write without `confirm_within` and `rollout_share`.',
  ),
  no_cluster: entry(
    409,
    'No cluster',
    'The configuration of this node has no `cluster` section.',
    'Configure the section, or send the request to a node of a cluster.',
  ),
  seal_key_needed: entry(
    409,
    'Seal key needed',
    'A cluster stores secrets only encrypted, and this node has no sealing key; nothing was changed.',
    'Configure the same `cluster.seal_key_file` on all nodes.',
  ),
  member_refused: entry(
    409,
    'Member refused',
    'A node of the cluster refused the policy, for example because the policy exceeds a limit of its datapath; nothing was changed.',
    'Correct the policy, or write it without a rehearsal; that node then keeps its present policy.',
  ),
  write_conflict: entry(
    409,
    'Write conflict',
    'Other nodes changed the same objects at the same time, also while the node tried again; nothing was changed.',
    'Send the request again.',
  ),
  invalid_config: entry(
    409,
    'Invalid configuration',
    'The configuration file of the node is not valid, or its policy file is not; nothing was changed.',
    'Correct every problem in `problems` in the file on the node, and reload again. `weir config check` shows them too.',
  ),
  would_unpolice: entry(
    409,
    'Would unpolice',
    'The file no longer names an interface that exists and is policed, so that its packets would pass without a policy; nothing was changed.',
    'Correct `dataplane.interfaces` in the file on the node, or add `allow_unpoliced=true` if the interface must be open.',
  ),
  would_open: entry(
    409,
    'Would open',
    'With the file, the node would begin to enforce IPv6 policies, and the policy in force, which names no IPv6 source, would pass all IPv6; nothing was changed.',
    'Write a policy whose default denies, or add `allow_open=true` if IPv6 must be open.',
  ),
  precondition_failed: entry(
    412,
    'Precondition failed',
    'The stored revision is not the one in If-Match, or a revision exists although If-None-Match requires none.',
    'Read the resource again, compare the changes, and write with the new ETag.',
  ),
  body_too_large: entry(
    413,
    'Body too large',
    'The body is larger than 64 MiB for a policy, or 1 MiB elsewhere.',
    'Send a smaller body.',
  ),
  url_too_long: entry(
    414,
    'URL too long',
    'A segment of the path is longer than the longest valid name.',
    'Send a shorter path.',
  ),
  unsupported_media_type: entry(
    415,
    'Unsupported media type',
    'The body was not sent with `Content-Type: application/json`, in UTF-8 and without content encoding.',
    'Send `Content-Type: application/json`.',
  ),
  upgrade_needed: entry(
    426,
    'Upgrade needed',
    'The path requires a WebSocket connection.',
    'Connect by WebSocket, with the subprotocol given in `/openapi/service-v1.json`.',
  ),
  rate_limited: entry(
    429,
    'Too many requests',
    'This client address sent more requests than the limit.',
    'Wait for the time given in `Retry-After`.',
  ),
  too_many_failed_logins: entry(
    429,
    'Too many failed logins',
    'This client address sent too many invalid tokens.',
    'Wait for the time given in `Retry-After`, and use a valid token.',
  ),
  too_many_questions: entry(
    429,
    'Too many questions',
    'Too many explain requests with this token are waiting.',
    'Wait for the pending responses.',
  ),
  headers_too_large: entry(
    431,
    'Headers too large',
    'There are too many headers, or they are too long.',
    'Send fewer or shorter headers.',
  ),
  internal: entry(
    500,
    'Internal error',
    'A bug of the service; its log has the cause.',
    'Report it with the log lines of that time.',
  ),
  proof_failed: entry(
    500,
    'Proof failed',
    'With the compiled policy the datapath gives a packet another verdict than the policy specifies; nothing was changed, and the active policy stays active.',
    'This is a bug of the service: report it with the policy and the packet given in `detail`.',
  ),
  too_costly: entry(
    503,
    'Too costly',
    'An explain request exceeded its time limit.',
    'Explain a smaller draft, or a draft with fewer regular expressions.',
  ),
  activation_timeout: entry(
    503,
    'Activation timeout',
    'The policy could not be activated within `policy.activation_timeout`; nothing was changed.',
    'Look at `/ready`, and try again.',
  ),
  dataplane_unavailable: entry(
    503,
    'Dataplane unavailable',
    'The dataplane cannot accept a policy now; nothing was changed.',
    'Look at `/ready`, and try again.',
  ),
  store_unavailable: entry(
    503,
    'Store unavailable',
    'The store cannot read or write now; nothing was changed.',
    'Free disk space or repair the disk, and try again.',
  ),
  generation_not_reached: entry(
    503,
    'Generation not reached',
    'The node did not enforce the requested generation within 2 s.',
    'Read again; the check policy_replication of the node shows why it is behind.',
  ),
  store_full: entry(
    503,
    'Store full',
    'The database of etcd is full; nothing was changed.',
    'Compact and defragment etcd, or raise its quota, and disarm its alarm.',
  ),
  outcome_unknown: entry(
    503,
    'Outcome unknown',
    'The write was sent to etcd or to the disk, which did not report whether it was applied.',
    'Read the object when etcd or the disk works again, and write it again if needed.',
  ),
  reload_failed: entry(
    503,
    'Reload failed',
    'A part of the node could not apply the new configuration; the former settings are in force, unless `detail` names a part without them.',
    'Correct what `detail` names, and reload again.',
  ),
  draining: entry(503, 'Draining', 'The node is shutting down and accepts no writes.', 'Try again after its restart.'),
  overloaded: entry(
    503,
    'Overloaded',
    'Too many large bodies are being received at the same time.',
    'Try again after `Retry-After`.',
  ),
  feature_unavailable: entry(
    503,
    'Feature unavailable',
    'The required part of the node is not running.',
    'Look at `/ready`, and configure the part.',
  ),
  performance_mode_disabled: entry(
    503,
    'Performance mode disabled',
    'Audit findings and wiretap are not available while performance mode is disabled.',
    'Enable it with `PUT /api/v1/settings/performance-mode`.',
  ),
} as const satisfies Record<RefusalCode, ErrorEntry> & Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

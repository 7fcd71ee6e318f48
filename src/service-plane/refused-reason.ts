import type { HttpFault } from './http/fault.js';
import type { UntrustedReason } from './untrusted-reason.js';

/** Why there is no connection to a server that a client may be shown. */
export type LinkFault =
  | 'server_unreachable'
  | 'server_handshake'
  | 'given_up'
  | 'server_changed'
  | `upstream_untrusted:${UntrustedReason}`;

/** Why a connection is not read: the thread, or the source, has as many as it may have. */
export type OverflowReason = 'too_many_connections' | 'too_many_connections_of_source';

/** Why something was not served. The set is closed, and the peers choose no word of it: it is a label of a metric. */
export type RefusedReason =
  | LinkFault
  | `request_${HttpFault}`
  | `response_${HttpFault}`
  | 'client_handshake'
  | 'client_http2'
  | 'head_late'
  | 'idle'
  | 'cut_by_policy'
  | 'no_ca'
  | 'no_common_protocol'
  | 'no_policy'
  | 'rapid_reset'
  | 'response_cut_short'
  | 'response_denied'
  | 'server_closed'
  | 'server_http2'
  | OverflowReason
  | 'unasked_response';

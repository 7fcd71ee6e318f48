import type { HttpFault } from './http/fault.js';
import type { UntrustedReason } from './untrusted-reason.js';

/** Why a server link could not be opened. */
export type LinkFault =
  | 'server_unreachable'
  | 'server_handshake'
  | 'given_up'
  | 'server_changed'
  | `upstream_untrusted:${UntrustedReason}`;

/** Why a connection is not inspected: the thread, or the source, has reached its limit. */
export type OverflowReason = 'too_many_connections' | 'too_many_connections_of_source';

/**
 * Why a connection or request was not served. The set is closed, and peers cannot add to it: it is a label of
 * a metric.
 */
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

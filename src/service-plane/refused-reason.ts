import type { UntrustedReason } from '#service-plane/upstream/untrusted-reason.js';
import type { HttpFault } from './http/fault.js';

/** Why the service plane (TLS and HTTP inspection) could not open a connection to the server. */
export type LinkFault =
  | 'server_unreachable'
  | 'server_handshake'
  | 'given_up'
  | 'server_changed'
  | `upstream_untrusted:${UntrustedReason}`;

/**
 * Why the service plane does not inspect a connection: the number of connections of the thread, or of the
 * source address in the thread, is at its limit.
 */
export type OverflowReason = 'too_many_connections' | 'too_many_connections_of_source';

/**
 * Why a connection or request was not served. `request_unsendable` and `response_unsendable`: Node's HTTP/2
 * API refused to send a head or trailers. The reasons are a fixed set that peers cannot extend, because each
 * reason is a label value of a metric.
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
  | 'suspended_by_policy'
  | 'no_ca'
  | 'no_common_protocol'
  | 'no_policy'
  | 'rapid_reset'
  | 'request_unsendable'
  | 'response_cut_short'
  | 'response_denied'
  | 'response_unsendable'
  | 'server_closed'
  | 'server_http2'
  | OverflowReason
  | 'unasked_response';

export type EtcdErrorCode =
  /** No member accepted the request. etcd did not apply it. */
  | 'unavailable'
  /**
   * A write was sent, and no member reported its outcome. etcd applied it, did not apply it, or applies it
   * later.
   */
  | 'outcome_unknown'
  /** A read got no response before its deadline. */
  | 'timed_out'
  /** The database of etcd is full (alarm NOSPACE). etcd did not apply the write. */
  | 'no_space'
  /** The revision that a read or a watch asks for was compacted. */
  | 'compacted'
  /**
   * The user, password or certificate is not valid in etcd, or lacks a permission. etcd did not apply the
   * request.
   */
  | 'denied'
  /** The lease of a key does not exist or has expired. etcd did not apply the request. */
  | 'lease_expired'
  /** etcd refused the request for another reason. etcd did not apply it. */
  | 'rejected'
  /** The client was closed before the request ended. */
  | 'closed';

/**
 * A failed request to etcd. The message names the operation, the member, and the reason that etcd or gRPC
 * reports.
 */
export class EtcdError extends Error {
  override readonly name = 'EtcdError';
  constructor(
    readonly code: EtcdErrorCode,
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
  }
}

import { type ServiceError, status } from '@grpc/grpc-js';
import { EtcdError, type EtcdErrorCode } from './etcd-error.js';

/** Whether a request changes etcd. The outcome of a write without a response is not known. */
export type RequestKind = 'read' | 'write';

/**
 * Returns the error for a request that gRPC or etcd ended with a failure. etcd did not apply a refused
 * request, except for the statuses that `codeOf` maps to `outcome_unknown`.
 */
export function etcdErrorOf(failure: ServiceError, operation: string, kind: RequestKind): EtcdError {
  return new EtcdError(codeOf(failure, kind), `${operation}: ${failure.details || failure.message}`, {
    cause: failure,
  });
}

function codeOf({ code, details }: ServiceError, kind: RequestKind): EtcdErrorCode {
  switch (code) {
    case status.OUT_OF_RANGE:
      return details.includes('compacted') ? 'compacted' : 'rejected';
    case status.RESOURCE_EXHAUSTED:
      return details.includes('database space exceeded') ? 'no_space' : 'rejected';
    case status.UNAUTHENTICATED:
    case status.PERMISSION_DENIED:
      return 'denied';
    case status.NOT_FOUND:
      return details.includes('lease not found') ? 'lease_expired' : 'rejected';
    case status.INVALID_ARGUMENT:
      return DENIED.some((reason) => details.includes(reason)) ? 'denied' : 'rejected';
    case status.FAILED_PRECONDITION:
    case status.ALREADY_EXISTS:
    case status.UNIMPLEMENTED:
      return 'rejected';
    case status.UNAVAILABLE:
      // A member without a leader refuses a request that requires a leader before it handles the request.
      if (details === NO_LEADER) return 'unavailable';
      break;
    default:
  }
  return kind === 'write' ? 'outcome_unknown' : 'timed_out';
}

const NO_LEADER = 'etcdserver: no leader';
/**
 * Error texts with the gRPC status INVALID_ARGUMENT that mean a problem of the etcd user, not of the request.
 */
const DENIED = ['user name is empty', 'authentication failed', 'auth store is old'];

/** Returns whether a request that failed at one etcd member may succeed at another member. */
export function isFaultOfMember(code: EtcdErrorCode): boolean {
  return code === 'unavailable' || code === 'timed_out' || code === 'outcome_unknown';
}

/** Returns whether a request got no response before its deadline. */
export function isLate({ cause }: EtcdError): boolean {
  return (cause as ServiceError | undefined)?.code === status.DEADLINE_EXCEEDED;
}

/**
 * Returns whether a failed request shows that its member cannot be used. A request without a response before
 * its deadline does not show this, because a slow disk of the leader delays requests at all members. The
 * heartbeat of a watch detects a member that does not respond at all.
 */
export function showsFaultOfMember(failure: EtcdError): boolean {
  return isFaultOfMember(failure.code) && !isLate(failure);
}

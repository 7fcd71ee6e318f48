import type { FindingDelta, WriteResponse } from './finding.js';
import { nobody } from './no-decider.js';

/**
 * An event that the management API reports. It never contains a body, a token, or a header other than the
 * ETag.
 */
export type AuditEvent = AuthDenied | ConfigChange;

type AuthDenied = {
  readonly type: 'auth_denied';
  /** The error code of the response. */
  readonly reason: string;
  /** The subject of the token. Set if the token was valid but its role not sufficient. */
  readonly actor: string | null;
  /** The operation id. Null if the path is not a path of the API. */
  readonly operation: string | null;
  /** The path template with its parameters unfilled, so that guessed paths do not create new findings. */
  readonly target: string | null;
  readonly remote: string;
};
type ConfigChange = WriteResponse & {
  readonly type: 'config_change';
  readonly actor: string | null;
  readonly operation: string | null;
  /** The path and query of the request. */
  readonly target: string;
  readonly remote: string;
};

/**
 * Converts an audit event to a finding. `atMs` is the time of the response; the source is the remote address.
 */
export function auditDelta(event: AuditEvent, atMs: number): FindingDelta {
  const { actor, operation, target, remote } = event;
  const seen = { generation: null, firstMs: atMs, lastMs: atMs, count: 1 };
  const who = { ...nobody, actor, operation, target, source: remote, ...seen };
  if (event.type === 'auth_denied') {
    return { ...who, type: 'auth_denied', effectiveAction: 'deny', dropReason: event.reason };
  }
  const { status, etag } = event;
  return { ...who, type: 'config_change', effectiveAction: 'allow', written: { status, etag } };
}

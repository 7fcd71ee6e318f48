import { emptyIdentity } from './empty-identity.js';
import type { FindingDelta, WriteResponse } from './finding.js';

/**
 * A request to the management API that becomes a finding: a request with an invalid token, a request after
 * too many failed logins, a request refused with status 403, or a successful write. An audit event never
 * contains a request body, a token, or a response header other than the ETag.
 */
export type AuditEvent = AuthDenied | ConfigChange;

type AuthDenied = {
  readonly type: 'auth_denied';
  /** The error code of the API's response. */
  readonly reason: string;
  /** The subject of the token if the token was valid but lacked the required role; otherwise null. */
  readonly actor: string | null;
  /** The operation id of the API's OpenAPI document. Null if the API does not have the requested path. */
  readonly operation: string | null;
  /**
   * The path pattern of the route, such as `/api/v1/policies/:id`; null if no route has the path. It is not
   * the requested path, because a client could then create a new finding with each guessed id.
   */
  readonly target: string | null;
  readonly remote: string;
};
type ConfigChange = WriteResponse & {
  readonly type: 'config_change';
  readonly actor: string | null;
  readonly operation: string | null;
  /** The path and query of the request to the management API, at most 1,000 characters. */
  readonly target: string;
  readonly remote: string;
};

/**
 * Converts an audit event to a finding whose source is the client's address. `atMs` is the time of the API's
 * response in milliseconds since 1970.
 */
export function auditDelta(event: AuditEvent, atMs: number): FindingDelta {
  const { actor, operation, target, remote } = event;
  const seen = { generation: null, firstMs: atMs, lastMs: atMs, count: 1 };
  const who = { ...emptyIdentity, actor, operation, target, source: remote, ...seen };
  if (event.type === 'auth_denied') {
    return { ...who, type: 'auth_denied', effectiveAction: 'deny', dropReason: event.reason };
  }
  const { status, etag } = event;
  return { ...who, type: 'config_change', effectiveAction: 'allow', written: { status, etag } };
}

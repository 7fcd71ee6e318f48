import type { FindingDelta, MessageCache } from './finding.js';
import { nobody } from './no-decider.js';

/** What the management API tells of itself. Never a body, a token, or the value of a header but the ETag. */
export type AuditEvent = AuthDenied | ConfigChange;

type AuthDenied = {
  readonly type: 'auth_denied';
  /** The error code that was answered. */
  readonly reason: string;
  /** The subject, where the token was valid and its role was not enough. */
  readonly actor: string | null;
  /** The operation id; null of a path that is none of the API's. */
  readonly operation: string | null;
  /** The path with its parameters unfilled: whoever guesses cannot make up new ones. */
  readonly target: string | null;
  readonly remote: string;
};
type ConfigChange = MessageCache & {
  readonly type: 'config_change';
  readonly actor: string | null;
  readonly operation: string | null;
  /** The path and query as they were asked for. */
  readonly target: string;
  readonly remote: string;
};

/** The event as a finding; `atMs` is when it was answered. The source is the remote address. */
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

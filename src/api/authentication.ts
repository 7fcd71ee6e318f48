import type { FastifyRequest } from 'fastify';
import type { Access } from './api.js';
import { ApiError } from './errors.js';
import type { Caller, Management, TokenVerdict } from './management.js';

/**
 * Counts a failed login of the request's address. Returns the seconds to wait if there were too many, else
 * null.
 */
export type FailedLogins = (request: FastifyRequest) => Promise<number | null>;

const CHALLENGE = 'Bearer realm="weir"';
const MALFORMED: TokenVerdict = { kind: 'refused', reason: 'malformed' };
const REASONS: Readonly<Record<string, string>> = {
  expired: 'the token has expired',
  revoked: 'the token was revoked',
};
const BEARER = /^Bearer +([\w.~+/=-]+) *$/i;

/**
 * Returns the caller of a request that needs one (D36), of any role. A valid token is accepted even if other
 * tokens from the same address failed.
 */
export async function authenticate(
  request: FastifyRequest,
  tokens: Management['tokens'],
  failedLogins: FailedLogins,
): Promise<Caller> {
  const { authorization } = request.headers;
  if (authorization === undefined)
    throw new ApiError('unauthenticated', undefined, [], { 'www-authenticate': CHALLENGE });
  const token = BEARER.exec(authorization)?.[1];
  const verdict = token === undefined ? MALFORMED : await tokens.verify(token);
  if (verdict.kind === 'refused') {
    const waitSeconds = await failedLogins(request);
    if (waitSeconds !== null) {
      throw new ApiError('too_many_failed_logins', undefined, [], { 'retry-after': String(waitSeconds) });
    }
    throw new ApiError('invalid_token', REASONS[verdict.reason], [], {
      'www-authenticate': `${CHALLENGE}, error="invalid_token"`,
    });
  }
  return verdict.identity;
}

/**
 * Whether the token of a request is still valid. For streams, which last longer than the check of their
 * request.
 */
export async function isStillAllowed({ headers }: FastifyRequest, tokens: Management['tokens']): Promise<boolean> {
  const token = BEARER.exec(headers.authorization ?? '')?.[1];
  if (token === undefined) return false;
  // No caller awaits this check: a failure must end the stream, not the process.
  return tokens.verify(token).then(
    ({ kind }) => kind === 'accepted',
    () => false,
  );
}

/**
 * Refuses a caller without the required role. A dry run of a write changes nothing, so both roles may request
 * it (D7).
 */
export function checkRole({ role }: Caller, access: Access, isDryRun: boolean): void {
  if (access !== 'write' || isDryRun || role === 'admin') return;
  throw new ApiError('forbidden', undefined, [], { 'www-authenticate': `${CHALLENGE}, error="insufficient_scope"` });
}

/** The subject to record as the author of a write. */
export function authorOf({ caller }: FastifyRequest): string {
  if (caller === null) throw new ApiError('unauthenticated');
  return caller.subject;
}

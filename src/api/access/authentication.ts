import type { TLSSocket } from 'node:tls';
import type { FastifyRequest } from 'fastify';
import type { Access } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';
import type { PeerOperations } from '#cluster/operations.js';
import type { TokenIdentity, TokenVerdict } from '#store/tokens/token-verdict.js';

/**
 * Counts a failed login from the client address of the request. Returns how many seconds the client must wait
 * after too many failed logins; otherwise null.
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
 * Verifies the token of a request and returns the authenticated client (D36). Does not check the role.
 * Accepts a valid token even if other tokens from the same client address failed.
 */
export async function authenticate(
  request: FastifyRequest,
  tokens: Management['tokens'],
  failedLogins: FailedLogins,
): Promise<TokenIdentity> {
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
 * Returns whether the token of a request is still valid. A stream must call this function repeatedly, because
 * the token may expire, or an administrator may revoke it, while the stream is open.
 */
export async function isStillAllowed({ headers }: FastifyRequest, tokens: Management['tokens']): Promise<boolean> {
  const token = BEARER.exec(headers.authorization ?? '')?.[1];
  if (token === undefined) return false;
  // Convert a rejection to false: callers in a timer do not handle rejections, and an unhandled rejection
  // would end the process.
  return tokens.verify(token).then(
    ({ kind }) => kind === 'accepted',
    () => false,
  );
}

/**
 * Throws `forbidden` if the client's role does not permit the route. Clients with any role may request a dry
 * run, because a dry run changes nothing (D7).
 */
export function checkRole({ role }: TokenIdentity, access: Access, isDryRun: boolean): void {
  if (access !== 'write' || isDryRun || role === 'admin') return;
  throw new ApiError('forbidden', undefined, [], { 'www-authenticate': `${CHALLENGE}, error="insufficient_scope"` });
}

/**
 * Whether the client of a request may change the node. For other clients, a dry run must open no connection
 * and start no watch.
 */
export function mayAct({ caller }: FastifyRequest): boolean {
  return caller?.role === 'admin';
}

/** Returns the token's subject, which is recorded as the author of a write. */
export function authorOf({ caller }: FastifyRequest): string {
  if (caller === null) throw new ApiError('unauthenticated');
  return caller.subject;
}

/**
 * Returns the node that sent a request to the peer listener. Throws `peer_unknown` if the client presents no
 * certificate of a node of the cluster. `needsCa`: whether a CA must have signed the certificate as well.
 */
export async function authenticatePeer(
  { socket }: FastifyRequest,
  peers: PeerOperations,
  needsCa: boolean,
): Promise<TokenIdentity> {
  const client = socket as TLSSocket;
  // Without a client certificate, the result is an empty object.
  const { raw } = client.getPeerCertificate() as { readonly raw?: Buffer };
  const id = raw === undefined || (needsCa && !client.authorized) ? null : await peers.nodeWith(raw);
  if (id === null) throw new ApiError('peer_unknown');
  return { id, keyId: null, subject: `node:${id}`, role: 'admin' };
}

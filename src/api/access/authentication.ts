import type { TLSSocket } from 'node:tls';
import type { FastifyRequest } from 'fastify';
import type { Access } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';
import { checkSameOrigin } from '#api/requests/request-guard.js';
import type { PeerOperations } from '#cluster/operations.js';
import type { SessionVerdict } from '#store/tokens/sessions.js';
import type { TokenIdentity, TokenVerdict } from '#store/tokens/token-verdict.js';
import { sessionCookieIn } from './session-cookie.js';

const CHALLENGE = 'Bearer realm="weir"';
const MALFORMED: TokenVerdict = { kind: 'refused', reason: 'malformed' };
const REASONS: Readonly<Record<string, string>> = {
  expired: 'the token has expired',
  revoked: 'the token was revoked',
};
const SESSION_REASONS: Readonly<Record<string, string>> = {
  invalid: 'the cookie is no session of this node',
  expired: 'the session has expired',
  ended: 'the session was ended',
  parent: 'the token of the session has expired or was revoked',
};
const BEARER = /^Bearer +([\w.~+/=-]+) *$/i;

type Authorities = Pick<Management, 'tokens' | 'sessions'>;

/**
 * Verifies the token of a request, or without a token the cookie of a session, and returns the authenticated
 * client (D36). Does not check the role. Accepts valid credentials even if others from the same client
 * address failed.
 */
export async function authenticate(request: FastifyRequest, authorities: Authorities): Promise<TokenIdentity> {
  if (request.headers.authorization === undefined) {
    const verdict = await sessionVerdict(request, authorities);
    if (verdict === null) throw unauthorized('unauthenticated');
    if (verdict.kind === 'refused')
      return request.refuseLogin(unauthorized('invalid_token', SESSION_REASONS[verdict.reason]));
    request.session = verdict.session;
    return verdict.identity;
  }
  const verdict = await bearerVerdict(request, authorities);
  return verdict.kind === 'accepted'
    ? verdict.identity
    : request.refuseLogin(unauthorized('invalid_token', REASONS[verdict.reason]));
}

/**
 * Verifies the cookie of a session; null if the request has none. Throws `origin_refused` if a browser sends
 * the cookie for a page of another origin, also with GET: SameSite=Strict does not withhold the cookie from
 * pages of other ports of the host.
 */
export async function sessionVerdict(
  request: FastifyRequest,
  { sessions }: Pick<Management, 'sessions'>,
): Promise<SessionVerdict | null> {
  const cookie = sessionCookieIn(request);
  if (cookie === undefined) return null;
  checkSameOrigin(request);
  return sessions.verify(cookie);
}

async function bearerVerdict({ headers }: FastifyRequest, { tokens }: Authorities): Promise<TokenVerdict> {
  const token = BEARER.exec(headers.authorization ?? '')?.[1];
  return token === undefined ? MALFORMED : tokens.verify(token);
}

/** Returns an error of status 401 with the challenge that RFC 9110, 11.6.1 requires. */
export function unauthorized(
  code: 'unauthenticated' | 'invalid_token' | 'invalid_sign_in_code',
  detail?: string,
): ApiError {
  const challenge = code === 'invalid_token' ? `${CHALLENGE}, error="invalid_token"` : CHALLENGE;
  return new ApiError(code, detail, [], { 'www-authenticate': challenge });
}

/**
 * Returns whether the token or the session of a request is still valid. A stream must call this function
 * repeatedly, because the token may expire, or an administrator may revoke it, while the stream is open.
 */
export async function isStillAllowed(request: FastifyRequest, authorities: Authorities): Promise<boolean> {
  const verify = request.headers.authorization === undefined ? sessionVerdict : bearerVerdict;
  // Convert a rejection to false: callers in a timer do not handle rejections, and an unhandled rejection
  // would end the process.
  return verify(request, authorities).then(
    (verdict) => verdict?.kind === 'accepted',
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

import { type KeyObject, randomUUID } from 'node:crypto';
import { errors, jwtVerify, SignJWT } from 'jose';
import type { EndedSessions } from './ended-sessions.js';
import { SignInCodes } from './sign-in-codes.js';
import { ALGORITHM, ISSUER, type TokenId, type TokenIdentity, type TokenRefusal } from './token-verdict.js';

/**
 * The audience of sessions. It differs from that of tokens, so that neither is accepted in place of the
 * other.
 */
const AUDIENCE = 'weir-console';
const LIFETIME_MS = 12 * 3_600_000;

/**
 * A session of a browser, with the subject and the role of the API token of its sign-in. It is valid only at
 * one node.
 */
export type Session = { readonly id: string; readonly node: string; readonly expiresAt: Date };

/** `ended`: by a sign-out. `parent`: the token of the session has expired, or was revoked. */
type SessionRefusal = 'invalid' | 'expired' | 'ended' | 'parent';

export type SessionVerdict =
  | { readonly kind: 'accepted'; readonly identity: TokenIdentity; readonly session: Session }
  | { readonly kind: 'refused'; readonly reason: SessionRefusal };

type StartedSession = {
  /** A JSON web token, the value of the session's cookie. */
  readonly jwt: string;
  readonly session: Session;
  readonly identity: TokenIdentity;
};

/** Starts, verifies and ends the sessions of browsers at this node (D36). */
export type Sessions = {
  /** Starts a session of a token, for 12 hours at most. Returns null if the token is not valid any more. */
  start(token: TokenId): Promise<StartedSession | null>;
  verify(jwt: string): Promise<SessionVerdict>;
  /**
   * Ends a session. It is refused from now on. Throws a `StoreError` if the disk fails to store that: the
   * session is then valid again after a restart of the node.
   */
  end(session: Session): Promise<void>;
  readonly codes: SignInCodes;
};

/** `expiresMs`: Unix time in milliseconds; infinity for a token that does not expire. */
export type ValidToken = { readonly identity: TokenIdentity; readonly expiresMs: number };

type SessionOptions = {
  /** The id of this node. */
  readonly node: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
  readonly now: () => Date;
  /** Returns why a token is refused if it is not valid any more. */
  readonly validToken: (token: TokenId) => ValidToken | { readonly reason: TokenRefusal };
  readonly ended: EndedSessions;
};

export function createSessions({ node, privateKey, publicKey, now, validToken, ended }: SessionOptions): Sessions {
  return {
    codes: new SignInCodes(now),

    async start(token) {
      const valid = validToken(token);
      if ('reason' in valid) return null;
      const { identity } = valid;
      // Whole seconds, as in the JWT.
      const expiresS = Math.floor(Math.min(now().getTime() + LIFETIME_MS, valid.expiresMs) / 1000);
      const id = randomUUID();
      const jwt = await new SignJWT({ parent: identity.id, parent_key: identity.keyId, node })
        .setProtectedHeader({ alg: ALGORITHM, typ: 'JWT' })
        .setIssuer(ISSUER)
        .setAudience(AUDIENCE)
        .setSubject(identity.subject)
        .setJti(id)
        .setIssuedAt(now())
        .setExpirationTime(expiresS)
        .sign(privateKey);
      return { jwt, session: { id, node, expiresAt: new Date(expiresS * 1000) }, identity };
    },

    async verify(jwt) {
      const read = await sessionIn(jwt, publicKey, now());
      if ('reason' in read) return refused(read.reason);
      const { session, parent } = read;
      if (session.node !== node) return refused('invalid');
      if (ended.has(session.id)) return refused('ended');
      const valid = validToken(parent);
      if ('reason' in valid) return refused('parent');
      return { kind: 'accepted', identity: valid.identity, session };
    },

    end: (session) => ended.add(session),
  };
}

const refused = (reason: SessionRefusal): SessionVerdict => ({ kind: 'refused', reason });

/** Verifies the signature, the audience and the expiry of a session. */
async function sessionIn(
  jwt: string,
  publicKey: KeyObject,
  currentDate: Date,
): Promise<{ session: Session; parent: TokenId } | { reason: SessionRefusal }> {
  try {
    const { payload } = await jwtVerify<{ parent: string; parent_key: string | null; node: string }>(jwt, publicKey, {
      algorithms: [ALGORITHM],
      typ: 'JWT',
      issuer: ISSUER,
      audience: AUDIENCE,
      requiredClaims: ['jti', 'exp', 'parent', 'parent_key', 'node'],
      currentDate,
    });
    const { jti = '', exp = 0, parent: id, parent_key: keyId, node } = payload;
    return { session: { id: jti, node, expiresAt: new Date(exp * 1000) }, parent: { id, keyId } };
  } catch (error) {
    if (error instanceof errors.JWTExpired) return { reason: 'expired' };
    if (error instanceof errors.JOSEError) return { reason: 'invalid' };
    throw error;
  }
}

import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, randomUUID } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { calculateJwkThumbprint, errors, exportJWK, jwtVerify, SignJWT } from 'jose';
import { Subscription } from 'rxjs';
import { MAX_BYTES, readBounded } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';
import { writeDurably } from '#store/disk/durable-file.js';
import { createMutex } from '#store/mutex.js';
import { StoreError } from '#store/store-error.js';
import type { Role, TokenRecord, TokenStore } from '#store/store-types.js';
import { EndedSessions } from './ended-sessions.js';
import { createSessions, type Sessions, type ValidToken } from './sessions.js';
import type { SharedTokens } from './shared-tokens.js';
import { ALGORITHM, ISSUER, type TokenId, type TokenRefusal, type TokenVerdict } from './token-verdict.js';

const AUDIENCE = 'weir-api';
const FIRST_TOKEN = 'admin-file-';
/** The time in milliseconds after which revocations are written again if the disk failed to store them. */
const RETRY_MS = 5_000;

type TokenRequest = {
  readonly subject: string;
  readonly role: Role;
  /** The lifetime of the token in milliseconds. Null: the token never expires. */
  readonly expiresInMs: number | null;
};

/**
 * Issues and verifies bearer tokens (D36). All token records are in memory, so `verify` does not read the
 * disk.
 */
export type Authority = {
  issue(request: TokenRequest): Promise<{ readonly token: string; readonly record: TokenRecord }>;
  verify(token: string | undefined): Promise<TokenVerdict>;
  list(): readonly TokenRecord[];
  /**
   * Revokes a token. When the promise resolves, the token is already rejected. Returns false if there is no
   * token with this id.
   */
  revoke(id: string): Promise<boolean>;
  /** The sessions of browsers. A session ends with the token from which it was started. */
  readonly sessions: Sessions;
  /** Ends the exchange of tokens with the cluster, and the attempts to store revocations. */
  close(): void;
};

type AuthorityOptions = {
  readonly now?: () => Date;
  /** The id of this node. */
  readonly node?: string;
  /** The tokens of the cluster; null on a single node. */
  readonly shared?: SharedTokens | null;
};

/**
 * Creates the authority of a data folder. Reads the signing key from `token.key`, and the admin token from
 * `admin.token`; creates missing files with mode 0600. Stores revocations in the store and in
 * `token.revocations`. If the admin token is missing or invalid, revokes the admin tokens that earlier starts
 * issued, and issues a new one. A revoked admin token is not replaced. Stores the sessions that were ended by
 * a sign-out in `session.ends`.
 *
 * In a cluster, each node signs with its own key. A new token or a revocation takes effect on this node at
 * once, also without etcd, and reaches the other nodes when etcd can be reached. Revocations only grow: a
 * node writes back the revocations that etcd has lost.
 */
export async function createAuthority(
  store: TokenStore,
  dataDir: string,
  { now = () => new Date(), node = 'node', shared = null }: AuthorityOptions = {},
): Promise<Authority> {
  const privateKey = await signingKey(join(dataDir, 'token.key'));
  const publicKey = createPublicKey(privateKey);
  const jwk = await exportJWK(publicKey);
  const kid = await calculateJwkThumbprint(jwk);
  /**
   * A second copy of the revocations. Without it, the node would accept a revoked token again after the store
   * has lost its newest records.
   */
  const revocations = lineFile(join(dataDir, 'token.revocations'));
  /** The revocations in the file. `revoked` also contains those that the disk failed to store. */
  let stored: ReadonlySet<string> = new Set(await revocations.read());
  const revoked = new Set(stored);
  const ends = lineFile(join(dataDir, 'session.ends'));
  const ended = new EndedSessions(await ends.read(), ends.write, now);
  const records = new Map((await store.list()).map((record) => [record.id, record]));

  const runExclusive = createMutex();
  // Writes to etcd have their own mutex: they can take seconds, and revocations must not wait for them.
  const runShareExclusive = createMutex();
  const recordOf = (id: string): TokenRecord | undefined => records.get(id) ?? shared?.records.get(id);
  const isRevoked = (id: string): boolean =>
    revoked.has(id) ||
    records.get(id)?.revoked_at != null ||
    shared?.records.get(id)?.revoked_at != null ||
    shared?.isDamaged(id) === true;
  /** A token without a key id was issued by an older build on this node. */
  const keyOf = (id: string | null): KeyObject | undefined => (id === null || id === kid ? publicKey : shared?.key(id));
  const keep = async (record: TokenRecord): Promise<void> => {
    await store.put(record);
    records.set(record.id, record);
  };

  const issue = async (request: TokenRequest, id: string = randomUUID()) => {
    const at = now();
    const expiresAt = request.expiresInMs === null ? null : new Date(at.getTime() + request.expiresInMs);
    const claims = new SignJWT({ role: request.role })
      .setProtectedHeader({ alg: ALGORITHM, typ: 'JWT', kid })
      .setIssuer(ISSUER)
      .setAudience(AUDIENCE)
      .setSubject(request.subject)
      .setJti(id)
      .setIssuedAt(at);
    if (expiresAt !== null) claims.setExpirationTime(expiresAt);
    const record: TokenRecord = {
      id,
      subject: request.subject,
      role: request.role,
      created_at: at.toISOString(),
      expires_at: expiresAt?.toISOString() ?? null,
      revoked_at: null,
    };
    const token = await claims.sign(privateKey);
    await keep(record);
    push();
    return { token, record };
  };

  const validToken = ({ id, keyId }: TokenId): ValidToken | { reason: TokenRefusal } => {
    if (keyOf(keyId) === undefined) return { reason: 'bad_signature' };
    const record = recordOf(id);
    if (record === undefined) return { reason: shared?.isDamaged(id) === true ? 'revoked' : 'unknown' };
    if (isRevoked(id)) return { reason: 'revoked' };
    const { subject, role, expires_at } = record;
    const expiresMs = expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(expires_at);
    return expiresMs <= now().getTime() ? { reason: 'expired' } : { identity: { id, keyId, subject, role }, expiresMs };
  };

  const verify = async (token: string | undefined): Promise<TokenVerdict> => {
    if (token === undefined || token === '') return refused('missing');
    const read = await verifiedId(token, keyOf);
    const valid = 'reason' in read ? read : validToken(read);
    return 'reason' in valid ? refused(valid.reason) : { kind: 'accepted', identity: valid.identity };
  };

  const subscription = new Subscription();
  let retry: NodeJS.Timeout | undefined;
  let shareRetry: NodeJS.Timeout | undefined;
  /**
   * Stores the revocations that `token.revocations` or the token records of this node lack. After a failure,
   * tries again later.
   */
  const storeRevoked = async (): Promise<void> => {
    clearTimeout(retry);
    const ids = [...revoked];
    try {
      if (ids.some((id) => !stored.has(id))) await revocations.write(ids);
      stored = new Set(ids);
      for (const id of ids) {
        const own = records.get(id);
        if (own?.revoked_at === null) await keep({ ...own, revoked_at: revokedAt(own) });
      }
    } catch (failure) {
      // After `close`, this process must not write the file, because the next process uses it.
      if (!subscription.closed) retry = setTimeout(storeRevokedLater, RETRY_MS).unref();
      throw failure;
    }
  };
  const storeRevokedLater = (): void => {
    void runExclusive(storeRevoked).catch(ignoreStoreError);
  };

  /**
   * Revokes a token. Adds the id of the token to `revoked` before it writes to the disk. So all nodes reject
   * the token even if the disk fails to store the revocation.
   */
  const revoke = async (id: string): Promise<boolean> => {
    if (recordOf(id) === undefined) return false;
    revoked.add(id);
    try {
      await runExclusive(storeRevoked);
    } finally {
      push();
    }
    return true;
  };

  const revokedAt = ({ id, revoked_at }: TokenRecord): string | null =>
    revoked_at ?? shared?.records.get(id)?.revoked_at ?? (revoked.has(id) ? now().toISOString() : null);

  /** Stores the revocations of other nodes on this node, in case etcd loses them. */
  const keepRevocations = (): void => {
    for (const { id, revoked_at } of shared?.records.values() ?? []) if (revoked_at !== null) revoked.add(id);
    storeRevokedLater();
  };

  /** Writes to the cluster the key, the records and the revocations of this node that the cluster lacks. */
  const share = async (): Promise<void> => {
    if (shared === null) return;
    if (shared.lacksKey(kid)) await shared.putKey(kid, { jwk, node });
    for (const record of new Map([...shared.records, ...records]).values()) {
      if (shared.isDamaged(record.id)) continue;
      const theirs = shared.records.get(record.id);
      const merged = { ...record, revoked_at: revokedAt(record) };
      if (theirs === undefined || (theirs.revoked_at === null && merged.revoked_at !== null))
        await shared.putRecord(merged);
    }
  };
  /** Starts `share` and does not wait for it. After a failure, tries again later. */
  const push = (): void => {
    clearTimeout(shareRetry);
    void runShareExclusive(share).catch((failure: unknown) => {
      ignoreStoreError(failure);
      if (!subscription.closed) shareRetry = setTimeout(push, RETRY_MS).unref();
    });
  };

  const adminTokenPath = join(dataDir, 'admin.token');
  const held = await verify((await readIfThere(adminTokenPath))?.trim());
  if (held.kind === 'refused' && held.reason !== 'revoked') {
    for (const id of records.keys()) if (id.startsWith(FIRST_TOKEN)) await revoke(id);
    const request: TokenRequest = { subject: 'admin', role: 'admin', expiresInMs: null };
    const { token } = await issue(request, `${FIRST_TOKEN}${randomUUID()}`);
    await writeSecret(adminTokenPath, `${token}\n`);
  }

  if (shared !== null) {
    keepRevocations();
    subscription.add(
      shared.changed.subscribe(() => {
        keepRevocations();
        if (shared.lacksKey(kid) || [...records.keys()].some((id) => shared.lacksRecord(id))) push();
      }),
    );
    subscription.add(shared.connected.subscribe((connected) => connected && push()));
  }
  return {
    issue: (request) => issue(request),
    verify,
    list: () =>
      [...new Map([...(shared?.records ?? []), ...records]).values()]
        .map((record) => ({ ...record, revoked_at: revokedAt(record) }))
        .sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at)),
    revoke,
    sessions: createSessions({ node, privateKey, publicKey, now, validToken, ended }),
    close: () => {
      subscription.unsubscribe();
      clearTimeout(retry);
      clearTimeout(shareRetry);
    },
  };
}

/** Returns a file of lines with mode 0600. A missing file has no lines. */
function lineFile(path: string) {
  return {
    async read(): Promise<readonly string[]> {
      const text = await readIfThere(path, MAX_LINES_BYTES);
      return text === undefined ? [] : text.split('\n').filter((line) => line !== '');
    },
    write: (lines: readonly string[]) => writeSecret(path, lines.map((line) => `${line}\n`).join('')),
  };
}

function ignoreStoreError(failure: unknown): void {
  if (!(failure instanceof StoreError)) throw failure;
}

const refused = (reason: TokenRefusal): TokenVerdict => ({ kind: 'refused', reason });

/**
 * Verifies the signature of a token and returns its id. Does not check the expiry claim of the token:
 * `validToken` checks the expiry in the token record.
 */
async function verifiedId(
  token: string,
  keyOf: (keyId: string | null) => KeyObject | undefined,
): Promise<TokenId | { reason: TokenRefusal }> {
  const keyNamed = ({ kid = null }: { readonly kid?: string | null }): KeyObject => {
    const key = keyOf(kid);
    if (key === undefined) throw new errors.JWSSignatureVerificationFailed('no node has this key');
    return key;
  };
  try {
    const { payload, protectedHeader } = await jwtVerify(token, keyNamed, {
      algorithms: [ALGORITHM],
      typ: 'JWT',
      issuer: ISSUER,
      audience: AUDIENCE,
      requiredClaims: ['jti', 'sub'],
      currentDate: new Date(0),
    });
    const { jti: id } = payload;
    return id === undefined ? { reason: 'malformed' } : { id, keyId: protectedHeader.kid ?? null };
  } catch (error) {
    if (error instanceof errors.JOSEAlgNotAllowed) return { reason: 'wrong_algorithm' };
    if (error instanceof errors.JWSSignatureVerificationFailed) return { reason: 'bad_signature' };
    if (error instanceof errors.JOSEError) return { reason: 'malformed' };
    throw error;
  }
}

async function signingKey(path: string): Promise<KeyObject> {
  const pem = await readIfThere(path);
  if (pem === undefined) {
    const { privateKey } = generateKeyPairSync('ed25519');
    await writeSecret(path, privateKey.export({ type: 'pkcs8', format: 'pem' }));
    return privateKey;
  }
  const { mode } = await stat(path);
  if ((mode & 0o077) !== 0) {
    throw new StoreError('token_key_exposed', `read ${path}: other users can read this key; run chmod 600 ${path}`);
  }
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === 'ed25519') return key;
  } catch (cause) {
    throw new StoreError('token_key_invalid', `read ${path}: the file contains no private key`, { cause });
  }
  throw new StoreError('token_key_invalid', `read ${path}: the file contains no Ed25519 key`);
}

/**
 * The size limit in bytes of a file of lines. Only the node writes these files, with one line for each
 * revoked token or ended session.
 */
const MAX_LINES_BYTES = MAX_BYTES.policy;

async function readIfThere(path: string, maxBytes: number = MAX_BYTES.secret): Promise<string | undefined> {
  try {
    return (await readBounded(path, maxBytes)).toString();
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return undefined;
    throw new StoreError('store_unavailable', `read ${path}: ${reasonOf(cause)}`, { cause });
  }
}

async function writeSecret(path: string, content: string | Buffer): Promise<void> {
  try {
    await writeDurably(path, content);
  } catch (cause) {
    const isFull = cause instanceof Error && 'code' in cause && cause.code === 'ENOSPC';
    throw new StoreError(isFull ? 'store_no_space' : 'store_unavailable', `write ${path}: ${reasonOf(cause)}`, {
      cause,
    });
  }
}

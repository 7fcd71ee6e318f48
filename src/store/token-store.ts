import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, randomUUID } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errors, jwtVerify, SignJWT } from 'jose';
import { MOST_BYTES, readBounded } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';
import { writeDurably } from './durable-file.js';
import { decodeJson, encodeJson, under } from './json-value.js';
import { StoreError } from './store-error.js';
import type { KvStore, Role, TokenRecord, TokenStore } from './store-types.js';
import { createTurns } from './write-queue.js';

const ALGORITHM = 'EdDSA';
const ISSUER = 'weir';
const AUDIENCE = 'weir-api';
const FIRST_TOKEN = 'admin-file-';

export function createTokenStore(kv: KvStore): TokenStore {
  return {
    async list() {
      const records: TokenRecord[] = [];
      for await (const [, bytes] of kv.iterate(under('token/'))) records.push(decodeJson(bytes));
      return records.sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at));
    },
    async get(id) {
      const bytes = await kv.get(`token/${id}`);
      return bytes === null ? null : decodeJson<TokenRecord>(bytes);
    },
    put: (record) => kv.put(`token/${record.id}`, encodeJson(record), { sync: true }),
  };
}

/** The identity of an API client: the id, subject and role of its token. */
type TokenIdentity = { readonly id: string; readonly subject: string; readonly role: Role };

/** Why a token is rejected. `unknown`: the signature is valid, but the store has no record of the token. */
type TokenRefusal = 'missing' | 'malformed' | 'wrong_algorithm' | 'bad_signature' | 'expired' | 'revoked' | 'unknown';

type TokenVerdict =
  | { readonly kind: 'accepted'; readonly identity: TokenIdentity }
  | { readonly kind: 'refused'; readonly reason: TokenRefusal };

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
};

/**
 * Creates the authority of a data folder. Reads the signing key from `token.key`, and the admin token from
 * `admin.token`; creates missing files with mode 0600. Stores revocations in the store and in
 * `token.revocations`. If the admin token is missing or invalid, revokes the admin tokens that earlier starts
 * issued, and issues a new one. A revoked admin token is not replaced.
 */
export async function createAuthority(
  store: TokenStore,
  dataDir: string,
  now: () => Date = () => new Date(),
): Promise<Authority> {
  const privateKey = await signingKey(join(dataDir, 'token.key'));
  const publicKey = createPublicKey(privateKey);
  const revocations = revocationFile(join(dataDir, 'token.revocations'));
  const revoked = new Set(await revocations.read());
  const records = new Map((await store.list()).map((record) => [record.id, record]));

  const inTurn = createTurns();
  const keep = async (record: TokenRecord): Promise<void> => {
    await store.put(record);
    records.set(record.id, record);
  };

  const issue = async (request: TokenRequest, id: string = randomUUID()) => {
    const at = now();
    const expiresAt = request.expiresInMs === null ? null : new Date(at.getTime() + request.expiresInMs);
    const claims = new SignJWT({ role: request.role })
      .setProtectedHeader({ alg: ALGORITHM, typ: 'JWT' })
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
    return { token, record };
  };

  const verify = async (token: string | undefined): Promise<TokenVerdict> => {
    if (token === undefined || token === '') return refused('missing');
    const id = await verifiedId(token, publicKey);
    if ('reason' in id) return refused(id.reason);
    const record = records.get(id.id);
    if (record === undefined) return refused('unknown');
    if (record.revoked_at !== null || revoked.has(record.id)) return refused('revoked');
    if (record.expires_at !== null && Date.parse(record.expires_at) <= now().getTime()) return refused('expired');
    return { kind: 'accepted', identity: { id: record.id, subject: record.subject, role: record.role } };
  };

  /**
   * Revokes a token. Adds the id of the token to `revoked` before the disk writes. So the node rejects the
   * token even if the disk fails to store the revocation.
   */
  const revoke = async (id: string): Promise<boolean> => {
    const record = records.get(id);
    if (record === undefined) return false;
    if (record.revoked_at !== null) return true;
    revoked.add(id);
    await inTurn(async () => {
      await revocations.write([...revoked]);
      await keep({ ...record, revoked_at: now().toISOString() });
    });
    return true;
  };

  const adminTokenPath = join(dataDir, 'admin.token');
  const held = await verify((await readIfThere(adminTokenPath))?.trim());
  if (held.kind === 'refused' && held.reason !== 'revoked') {
    for (const id of records.keys()) if (id.startsWith(FIRST_TOKEN)) await revoke(id);
    const request: TokenRequest = { subject: 'admin', role: 'admin', expiresInMs: null };
    const { token } = await issue(request, `${FIRST_TOKEN}${randomUUID()}`);
    await writeDurably(adminTokenPath, `${token}\n`);
  }

  return { issue: (request) => issue(request), verify, list: () => [...records.values()], revoke };
}

/**
 * A second copy of the revocations in a file. Without this copy, the node would accept a revoked token again
 * after the store has lost its newest records.
 */
function revocationFile(path: string) {
  return {
    async read(): Promise<readonly string[]> {
      const text = await readIfThere(path, MOST_REVOCATION_BYTES);
      return text === undefined ? [] : text.split('\n').filter((id) => id !== '');
    },
    write: (ids: readonly string[]) => writeDurably(path, ids.map((id) => `${id}\n`).join('')),
  };
}

const refused = (reason: TokenRefusal): TokenVerdict => ({ kind: 'refused', reason });

/**
 * Verifies the signature of a token and returns its id. Does not check the expiry claim of the token:
 * `verify` checks the expiry in the token record.
 */
async function verifiedId(token: string, publicKey: KeyObject): Promise<{ id: string } | { reason: TokenRefusal }> {
  try {
    const { payload } = await jwtVerify(token, publicKey, {
      algorithms: [ALGORITHM],
      typ: 'JWT',
      issuer: ISSUER,
      audience: AUDIENCE,
      requiredClaims: ['jti', 'sub'],
      currentDate: new Date(0),
    });
    return payload.jti === undefined ? { reason: 'malformed' } : { id: payload.jti };
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
    await writeDurably(path, privateKey.export({ type: 'pkcs8', format: 'pem' }));
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
 * The size limit of the revocation file in bytes. Only the node writes this file, with one line for each
 * revoked token.
 */
const MOST_REVOCATION_BYTES = MOST_BYTES.policy;

async function readIfThere(path: string, maxBytes: number = MOST_BYTES.secret): Promise<string | undefined> {
  try {
    return (await readBounded(path, maxBytes)).toString();
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return undefined;
    throw new StoreError('store_unavailable', `read ${path}: ${reasonOf(cause)}`, { cause });
  }
}

import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { base64url, SignJWT } from 'jose';
import { describe, expect, it, onTestFinished } from 'vitest';
import { StoreError } from '#store/store-error.js';
import { type Authority, createAuthority } from '#store/tokens/authority.js';
import { createTokenStore } from '#store/tokens/token-store.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { temporaryFolder } from './temporary-folder.js';

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    (error: StoreError) => error.code,
  );

/** Creates an authority, which is closed at the end of the test: it would retry to store revocations. */
async function openAuthority(...options: Parameters<typeof createAuthority>): Promise<Authority> {
  const opened = await createAuthority(...options);
  onTestFinished(() => opened.close());
  return opened;
}

async function authority() {
  const dataDir = temporaryFolder();
  const kv = createMemoryStore();
  const clock = { at: new Date('2026-01-01T00:00:00Z') };
  const open = () => openAuthority(createTokenStore(kv), dataDir, { now: () => clock.at });
  return { dataDir, kv, clock, open, authority: await open() };
}

const adminToken = (dataDir: string) => readFileSync(join(dataDir, 'admin.token'), 'utf8').trim();
const refused = (reason: string) => ({ kind: 'refused', reason });

describe('the token authority', () => {
  it('the token authority creates a signing key and an admin token at the first start, with file mode 0600, and keeps both after a restart', async () => {
    const { dataDir, authority: first, open } = await authority();
    const token = adminToken(dataDir);
    const verdict = await first.verify(token);
    expect(verdict).toEqual({
      kind: 'accepted',
      identity: {
        id: expect.stringMatching(/^admin-file-[0-9a-f-]{36}$/),
        keyId: expect.stringMatching(/^[\w-]{43}$/),
        subject: 'admin',
        role: 'admin',
      },
    });
    for (const name of ['token.key', 'admin.token']) {
      expect(statSync(join(dataDir, name)).mode & 0o777).toBe(0o600);
    }
    const second = await open();
    expect(adminToken(dataDir)).toBe(token);
    expect(await second.verify(token)).toEqual(verdict);
  });

  it('the token authority issues a token, and stores a record that does not contain the token', async () => {
    const { authority: tokens, kv } = await authority();
    const { token, record } = await tokens.issue({ subject: 'ci', role: 'readonly', expiresInMs: 60_000 });
    expect(record).toEqual({
      id: record.id,
      subject: 'ci',
      role: 'readonly',
      created_at: '2026-01-01T00:00:00.000Z',
      expires_at: '2026-01-01T00:01:00.000Z',
      revoked_at: null,
    });
    expect(await tokens.verify(token)).toEqual({
      kind: 'accepted',
      identity: { id: record.id, keyId: expect.any(String), subject: 'ci', role: 'readonly' },
    });
    expect(tokens.list().map(({ subject }) => subject)).toEqual(['admin', 'ci']);
    const signature = token.split('.')[2] ?? '';
    for await (const [, value] of kv.iterate({ gte: '', lt: '~' })) {
      expect(Buffer.from(value).includes(signature)).toBe(false);
    }
  });

  it('the token authority refuses a token with the reason expired as soon as the expiry time of the token is reached', async () => {
    const { authority: tokens, clock } = await authority();
    const { token } = await tokens.issue({ subject: 'ci', role: 'admin', expiresInMs: 1_000 });
    clock.at = new Date('2026-01-01T00:00:00.999Z');
    expect((await tokens.verify(token)).kind).toBe('accepted');
    clock.at = new Date('2026-01-01T00:00:01Z');
    expect(await tokens.verify(token)).toEqual(refused('expired'));
  });

  it('the token authority refuses a revoked token immediately after the revocation, and after a restart', async () => {
    const { authority: tokens, open } = await authority();
    const { token, record } = await tokens.issue({ subject: 'ci', role: 'admin', expiresInMs: null });
    expect(await tokens.revoke(record.id)).toBe(true);
    expect(await tokens.verify(token)).toEqual(refused('revoked'));
    expect(await (await open()).verify(token)).toEqual(refused('revoked'));
    expect(await tokens.revoke(record.id)).toBe(true);
    expect(await tokens.revoke('unknown')).toBe(false);
  });

  it('the token authority refuses a revoked token even if the store lost the revocation or cannot store the revocation', async () => {
    const { dataDir, kv } = await authority();
    const store = createTokenStore(kv);
    const tokens = await openAuthority(store, dataDir);
    const { token, record } = await tokens.issue({ subject: 'ci', role: 'admin', expiresInMs: null });
    await tokens.revoke(record.id);
    await store.put(record);
    expect(await (await openAuthority(store, dataDir)).verify(token)).toEqual(refused('revoked'));

    const full = { ...store, put: () => Promise.reject(new StoreError('store_no_space', 'write a token: disk full')) };
    const other = await tokens.issue({ subject: 'ci', role: 'admin', expiresInMs: null });
    const onFullDisk = await openAuthority(full, dataDir);
    await expect(onFullDisk.revoke(other.record.id)).rejects.toThrow('disk full');
    expect(await onFullDisk.verify(other.token)).toEqual(refused('revoked'));
  });

  it.each(['the same', 'another'])(
    'the token authority stores a revocation that the disk refused, with the next revocation of %s token',
    async (next) => {
      const { authority: tokens, dataDir, open } = await authority();
      const { token, record } = await tokens.issue({ subject: 'ci', role: 'admin', expiresInMs: null });
      const other = await tokens.issue({ subject: 'cd', role: 'admin', expiresInMs: null });
      // Make the write of the new file fail: a folder is at its path.
      const draft = join(dataDir, 'token.revocations.new');
      mkdirSync(draft);
      for (let attempt = 0; attempt < 2; attempt++)
        expect(await codeOf(tokens.revoke(record.id))).toBe('store_unavailable');
      expect(await tokens.verify(token)).toEqual(refused('revoked'));
      rmdirSync(draft);
      expect(await tokens.revoke((next === 'another' ? other : { record }).record.id)).toBe(true);
      expect(await (await open()).verify(token)).toEqual(refused('revoked'));
    },
  );

  it('the token authority returns a different reason for a missing, a malformed and a wrongly signed token', async () => {
    const { authority: tokens } = await authority();
    const other = (await authority()).authority;
    const { token } = await tokens.issue({ subject: 'ci', role: 'readonly', expiresInMs: null });
    const [header = '', payload = '', signature = ''] = token.split('.');
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString());
    const raised = base64url.encode(JSON.stringify({ ...claims, role: 'admin' }));
    const foreign = await other.issue({ subject: 'ci', role: 'admin', expiresInMs: null });
    expect({
      none: await tokens.verify(undefined),
      empty: await tokens.verify(''),
      text: await tokens.verify('hello'),
      twoParts: await tokens.verify(`${header}.${payload}`),
      raised: await tokens.verify(`${header}.${raised}.${signature}`),
      unsigned: await tokens.verify(`${header}.${payload}.`),
      foreign: await tokens.verify(foreign.token),
    }).toEqual({
      none: refused('missing'),
      empty: refused('missing'),
      text: refused('malformed'),
      twoParts: refused('malformed'),
      raised: refused('bad_signature'),
      unsigned: refused('bad_signature'),
      foreign: refused('bad_signature'),
    });
  });

  it('the token authority refuses a token with the algorithm HS256, ES256 or none', async () => {
    const { authority: tokens, dataDir } = await authority();
    const { record } = await tokens.issue({ subject: 'ci', role: 'readonly', expiresInMs: null });
    const publicKey = createPublicKey(readFileSync(join(dataDir, 'token.key')));
    const jwt = () =>
      new SignJWT({ role: 'admin' }).setIssuer('weir').setAudience('weir-api').setSubject('ci').setJti(record.id);
    const secrets = [
      Buffer.from(publicKey.export({ type: 'spki', format: 'pem' })),
      publicKey.export({ type: 'spki', format: 'der' }),
      publicKey.export({ type: 'spki', format: 'der' }).subarray(-32),
    ];
    for (const secret of secrets) {
      const confused = await jwt().setProtectedHeader({ alg: 'HS256', typ: 'JWT' }).sign(secret);
      expect(await tokens.verify(confused)).toEqual(refused('wrong_algorithm'));
    }
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const es256 = await jwt().setProtectedHeader({ alg: 'ES256', typ: 'JWT', jwk: {} }).sign(privateKey);
    expect(await tokens.verify(es256)).toEqual(refused('wrong_algorithm'));
    const body = base64url.encode(JSON.stringify({ iss: 'weir', aud: 'weir-api', sub: 'ci', jti: record.id }));
    for (const alg of ['none', 'None', 'NONE']) {
      const head = base64url.encode(JSON.stringify({ alg, typ: 'JWT' }));
      expect(await tokens.verify(`${head}.${body}.`)).toEqual(refused('wrong_algorithm'));
    }
  });

  it('the token authority refuses a correctly signed token that has no record, no id, or another audience', async () => {
    const { authority: tokens, dataDir } = await authority();
    const { generateKeyPairSync: _, createPrivateKey } = await import('node:crypto');
    const key = createPrivateKey(readFileSync(join(dataDir, 'token.key')));
    const sign = (audience: string, id?: string) => {
      const jwt = new SignJWT({}).setProtectedHeader({ alg: 'EdDSA', typ: 'JWT' }).setIssuer('weir').setSubject('x');
      if (id !== undefined) jwt.setJti(id);
      return jwt.setAudience(audience).sign(key);
    };
    expect(await tokens.verify(await sign('weir-api', 'nobody'))).toEqual(refused('unknown'));
    expect(await tokens.verify(await sign('other', 'nobody'))).toEqual(refused('malformed'));
    expect(await tokens.verify(await sign('weir-api'))).toEqual(refused('malformed'));
  });

  it('the token authority replaces an admin token file that is missing or signed by another key, and refuses the previous admin token', async () => {
    const { dataDir, open, authority: first } = await authority();
    const before = adminToken(dataDir);
    rmSync(join(dataDir, 'admin.token'));
    const second = await open();
    expect((await second.verify(adminToken(dataDir))).kind).toBe('accepted');
    expect(await second.verify(before)).toEqual(refused('revoked'));
    rmSync(join(dataDir, 'token.key'));
    const third = await open();
    expect((await third.verify(adminToken(dataDir))).kind).toBe('accepted');
    expect((await first.verify(adminToken(dataDir))).kind).toBe('refused');
  });

  it('the token authority refuses a revoked admin token after a restart', async () => {
    const { dataDir, open, authority: first } = await authority();
    const verdict = await first.verify(adminToken(dataDir));
    if (verdict.kind === 'accepted') await first.revoke(verdict.identity.id);
    const second = await open();
    expect(await second.verify(adminToken(dataDir))).toEqual(refused('revoked'));
  });

  it('the token authority cannot be created with a signing key that other users can read, or with an invalid signing key', async () => {
    const { dataDir, open } = await authority();
    const key = join(dataDir, 'token.key');
    chmodSync(key, 0o640);
    expect(await codeOf(open())).toBe('token_key_exposed');
    chmodSync(key, 0o600);
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    for (const content of ['nonsense', privateKey.export({ type: 'pkcs8', format: 'pem' })]) {
      writeFileSync(key, content);
      expect(await codeOf(open())).toBe('token_key_invalid');
    }
  });
});

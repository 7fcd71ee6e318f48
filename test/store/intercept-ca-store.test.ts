import { chmodSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { createInterceptCaStore } from '#store/settings/intercept-ca-store.js';
import { fileSeal } from '#store/settings/seal.js';
import { StoreError } from '#store/store-error.js';
import { createMemoryStore, memorySeal } from '#test/store/memory-store.js';
import { foundIn, tracesOf } from '../service-plane/ca/traces.js';
import { temporaryFolder } from './temporary-folder.js';

const ca = generateCa({ commonName: 'first', days: 30 });
const other = generateCa({ commonName: 'second', days: 30 });
const KEY = 'setting/tls-intercept-ca';
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    (error: StoreError) => error.code,
  );

function sealed(isGiven = false) {
  const path = join(temporaryFolder(), 'seal.key');
  const kv = createMemoryStore();
  const open = () => createInterceptCaStore(kv, fileSeal(path, isGiven), { now: () => new Date(0) });
  return { path, kv, open, store: open() };
}

it('the intercept CA store keeps the CA after a restart, and decrypts the private key with the sealing key', async () => {
  const { store, open } = sealed();
  const record = await store.put(ca, 'ops', 0);
  expect(record).toEqual({
    cert_pem: ca.certPem,
    chain_pem: '',
    fingerprint: ca.fingerprint,
    sealed_key: record.sealed_key,
    revision: 1,
    updated_at: '1970-01-01T00:00:00.000Z',
    updated_by: 'ops',
  });
  const again = open();
  expect(await again.get()).toEqual(record);
  expect((await again.key(record)).equals(ca.key)).toBe(true);
});

it('the intercept CA store replaces a damaged CA, and does not return it', async () => {
  const { store, kv } = sealed();
  const intact = { ...kv };
  const damaged = async () => {
    throw new StoreError('store_damaged', `read ${KEY}`, { key: KEY });
  };
  Object.assign(kv, { get: damaged, getMany: damaged });
  expect(await codeOf(store.get())).toBe('store_damaged');
  expect(await store.remove()).toBe(false);
  const record = await store.put(ca, 'ops', 0);
  Object.assign(kv, intact);
  expect(await store.get()).toEqual(record);
});

it('the intercept CA store writes no part of the private key in plain text', async () => {
  const { store, kv } = sealed();
  await store.put(ca, 'ops');
  expect(foundIn(Buffer.from((await kv.get(KEY)) ?? []), tracesOf(ca.key))).toEqual([]);
  expect(foundIn(ca.key.export({ type: 'pkcs8', format: 'pem' }) as string, tracesOf(ca.key))).not.toEqual([]);
});

it('the intercept CA store encrypts the same private key differently at each write', async () => {
  const { store } = sealed();
  const [first, second] = [await store.put(ca, 'ops'), await store.put(ca, 'ops')];
  expect(second.sealed_key).not.toBe(first.sealed_key);
});

it('the intercept CA store creates the sealing key at the first write of a CA, with file mode 0600', async () => {
  const { store, path } = sealed();
  expect([await store.get(), existsSync(path)]).toEqual([null, false]);
  await store.put(ca, 'ops');
  expect([statSync(path).mode & 0o777, readFileSync(path, 'utf8').length]).toEqual([0o600, 45]);
});

it('the intercept CA store uses a sealing key that the operator provides, and does not create a missing provided key', async () => {
  const { store, path } = sealed(true);
  expect(await codeOf(store.put(ca, 'ops'))).toBe('seal_key_missing');
  writeFileSync(path, `${Buffer.alloc(32, 7).toString('base64')}\n`, { mode: 0o600 });
  expect(await codeOf(store.put(ca, 'ops'))).toBe('done');
});

it('the intercept CA store returns different error codes for a missing, exposed, invalid or wrong sealing key, and for a modified record', async () => {
  const { store, path } = sealed();
  const record = await store.put(ca, 'ops');
  const key = readFileSync(path);
  const codes: string[] = [];
  const note = async (given = record) => codes.push(await codeOf(store.key(given)));
  chmodSync(path, 0o640);
  await note();
  rmSync(path);
  await note();
  writeFileSync(path, 'short', { mode: 0o600 });
  await note();
  writeFileSync(path, Buffer.alloc(32).toString('base64'));
  await note();
  writeFileSync(path, key);
  await note({ ...record, fingerprint: other.fingerprint });
  await note({
    ...record,
    sealed_key: `${record.sealed_key.startsWith('A') ? 'B' : 'A'}${record.sealed_key.slice(1)}`,
  });
  await note({ ...record, sealed_key: record.sealed_key.slice(0, 20) });
  await note();
  expect(codes).toEqual([
    'seal_key_exposed',
    'seal_key_missing',
    'seal_key_invalid',
    'seal_broken',
    'seal_broken',
    'seal_broken',
    'seal_broken',
    'done',
  ]);
});

it('the intercept CA store continues the revision numbers after a removal, and refuses writes that expect another revision', async () => {
  const store = createInterceptCaStore(createMemoryStore(), memorySeal());
  expect(await codeOf(store.put(ca, 'ops', 1))).toBe('revision_conflict');
  expect((await store.put(ca, 'ops', 0)).revision).toBe(1);
  expect(await codeOf(store.put(other, 'ops', 0))).toBe('revision_conflict');
  expect(await codeOf(store.remove(2))).toBe('revision_conflict');
  expect([await store.remove(1), await store.remove(), await store.get()]).toEqual([true, false, null]);
  const record = await store.put(other, 'ops', 0);
  expect([record.revision, (await store.key(record)).equals(other.key)]).toEqual([2, true]);
});

it('the intercept CA store accepts only one of two concurrent writes that expect the same revision', async () => {
  const { store } = sealed();
  expect(await Promise.all([codeOf(store.put(ca, 'a', 0)), codeOf(store.put(other, 'b', 0))])).toEqual([
    'done',
    'revision_conflict',
  ]);
});

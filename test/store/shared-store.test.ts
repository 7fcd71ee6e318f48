import { join } from 'node:path';
import { firstValueFrom } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { interceptCaOf } from '#service-plane/ca/intercept-ca.js';
import { interceptCaOver } from '#service-plane/ca/intercept-ca-setting.js';
import { lastGoodFile } from '#store/policies/last-good.js';
import { encodeJson } from '#store/records/json-value.js';
import { RecordKind, shaped } from '#store/records/record-kind.js';
import { RECORDS } from '#store/records/records.js';
import { assembleStore } from '#store/store.js';
import type { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';
import { type FakeNode, FakeSharedStore } from './fake-shared-store.js';
import { describeKvStore } from './kv-contract.js';
import { createMemoryStore, memorySeal, NO_COPY } from './memory-store.js';
import { storedPolicy } from './stored-policy.js';
import { temporaryFolder } from './temporary-folder.js';

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    (error: StoreError) => error.code,
  );

describeKvStore('fake shared store with one node', async () => {
  const node = await new FakeSharedStore().nodeOf();
  return { ...bound(node), close: () => node.kv.close() };
});

const bound = (node: FakeNode): KvStore => ({
  get: (key) => node.get(key),
  getMany: (keys) => node.getMany(keys),
  put: (key, value) => node.put(key, value),
  delete: (key) => node.delete(key),
  batch: (operations) => node.batch(operations),
  iterate: (range) => node.iterate(range),
  close: () => node.close(),
});

const SEAL = memorySeal();
const MODE = { enabled: false, revision: 1, updated_at: '2026-01-02T03:04:05.000Z', updated_by: 'ops' };
const ANY = shaped<number>(() => true, '');
const X = new RecordKind<number>('setting/x', ANY);
const Y = new RecordKind<number>('setting/y', ANY);

async function nodeOf(shared: FakeSharedStore, seals = true) {
  const node = await shared.nodeOf(seals ? [] : ['setting/tls-intercept-ca']);
  const store = await assembleStore(node.kv, NO_COPY, SEAL, () => {}, {
    store: node,
    commits: node.commits,
    kv: node.kv,
    seals,
  });
  return { node, store };
}

describe('the store of a node in a cluster', () => {
  it('the store of a cluster node contains the policy that another node has committed, and refuses a commit over a newer policy', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    const put = storedPolicy({ id: 'p', name: 'edge' }, '{}');
    await a.store.policies.commit({ put, generation: 1 });
    await b.node.settled();
    expect([await b.store.policies.active(), await b.store.policies.generation()]).toEqual([put, 1]);

    b.node.hold();
    await a.store.policies.commit({ put: storedPolicy({ id: 'q', name: 'q' }, '{}'), generation: 2 });
    const late = b.store.policies.commit({ put: storedPolicy({ id: 'r', name: 'r' }, '{}'), generation: 2 });
    expect(await codeOf(late)).toBe('revision_conflict');
    expect(shared.keys('policy/')).toEqual(['policy/p', 'policy/q']);
  });

  it('the store of a cluster node without etcd reads the settings of other nodes from its local copy of the shared keys, and refuses writes', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    await a.store.settings.put(RECORDS.performanceMode, MODE);
    await b.node.settled();
    b.node.disconnect();
    expect([await b.store.settings.get(RECORDS.performanceMode), b.store.settings.source]).toEqual([MODE, 'cluster']);
    expect(await codeOf(b.store.settings.put(RECORDS.performanceMode, MODE))).toBe('store_unavailable');
    expect(shared.json('setting/performance_mode')).toEqual(MODE);
  });

  it('without a common sealing key, a cluster node keeps an intercept CA to itself, also when its local copy of the shared keys is read again', async () => {
    const shared = new FakeSharedStore();
    const { node, store } = await nodeOf(shared, false);
    const { certPem, key } = generateCa({ commonName: 'own', days: 1 });
    const record = await store.interceptCa.put(interceptCaOf(certPem, '', key), 'ops');
    node.disconnect();
    await node.connect();
    expect([await store.interceptCa.get(), shared.keys()]).toEqual([record, []]);
  });

  it('with a common sealing key, an intercept CA is shared in the cluster, and another node can decrypt its key', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    const { certPem, key } = generateCa({ commonName: 'common', days: 1 });
    const record = await a.store.interceptCa.put(interceptCaOf(certPem, '', key), 'ops');
    await b.node.settled();
    expect((await b.store.interceptCa.key(record)).equals(key)).toBe(true);
    expect(await b.store.interceptCa.get()).toEqual(record);
  });

  it("the close of a cluster node's store closes the shared store and the local store", async () => {
    const { node, store } = await nodeOf(new FakeSharedStore());
    await store.close();
    expect(await codeOf(node.kv.get('a'))).toBe('store_closed');
    expect(node.isConnected).toBe(false);
  });
});

describe('the record of the active policy in a cluster', () => {
  it.each([['garbage'], ['{}'], [null]])(
    'an active policy whose record in etcd is unreadable or missing (%s) is not put in force again, and its last-good copy (file beside the database) stays',
    async (text) => {
      const shared = new FakeSharedStore();
      const node = await shared.nodeOf();
      const copy = lastGoodFile(join(temporaryFolder(), 'last-good.policy'));
      const findings: string[] = [];
      const open = () =>
        assembleStore(node.kv, copy, SEAL, ({ code }) => findings.push(code), {
          ...{ store: node, commits: node.commits, kv: node.kv, seals: true },
        });
      const { policies } = await open();
      const put = storedPolicy({ id: 'p', name: 'p' }, '{}');
      await policies.commit({ put, generation: 1 });
      await node.settled();
      await expect.poll(async () => (await copy.read())?.active?.row.id).toBe('p');

      if (text === null) await node.delete('policy/p');
      else await node.put('policy/p', Buffer.from(text));
      await node.put('head', encodeJson({ ...(shared.json('head') as object), generation: 2 }));
      await node.settled();
      expect(await codeOf(policies.active())).toBe('store_damaged');
      expect(await codeOf(policies.toEnforce())).toBe('store_damaged');
      expect((await copy.read())?.active?.row.id).toBe('p');

      await node.put('head', encodeJson({ ...(shared.json('head') as object), generation: 1 }));
      const again = (await open()).policies;
      expect([await again.active(), findings.includes('active_damaged')]).toEqual([put, true]);
    },
  );
});

describe('a setting in a cluster', () => {
  const count = (stored: number | null): number => (stored ?? 0) + 1;

  it('a cluster setting emits each change of this and of another node, and null after a removal', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    const seen: unknown[] = [];
    b.store.settings.changed(X).subscribe((value) => seen.push(value));
    await a.store.settings.put(X, 1);
    await a.store.settings.put(Y, 1);
    await b.store.settings.put(X, 2);
    await a.node.delete('setting/x');
    await b.node.settled();
    expect(seen).toEqual([1, 2, null]);
  });

  it('the update of a cluster setting is computed from the value that another node wrote first, if the client expects no revision', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    b.node.hold();
    await a.store.settings.update(X, undefined, count);
    const updated = b.store.settings.update(X, undefined, count);
    await new Promise(setImmediate);
    await b.node.release();
    expect([await updated, shared.json('setting/x')]).toEqual([2, 2]);
  });

  it('the update of a cluster setting is refused if another node wrote first and the client expects a revision', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    b.node.hold();
    await a.store.settings.update(X, 0, count);
    expect(await codeOf(b.store.settings.update(X, 0, count))).toBe('revision_conflict');
  });

  it('a cluster setting is not overwritten if a change of another node arrives between the read and the write', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    let release: () => void = () => {};
    const slow = new Promise<void>((resolve) => {
      release = resolve;
    });
    const read = b.node.kv.get.bind(b.node.kv);
    b.node.kv.get = async (key) => {
      const value = await read(key);
      await slow;
      return value;
    };
    const updated = b.store.settings.update(X, 0, count);
    await a.store.settings.put(X, 7);
    await b.node.settled();
    release();
    expect(await codeOf(updated)).toBe('revision_conflict');
    expect(shared.json('setting/x')).toBe(7);
  });

  it('a setting never emits a change on a node without a cluster', async () => {
    const store = await assembleStore(createMemoryStore(), NO_COPY, SEAL, () => {}, null);
    const emitted = firstValueFrom(store.settings.changed(X));
    await store.settings.put(X, 1);
    expect(await Promise.race([emitted, Promise.resolve('nothing')])).toBe('nothing');
    expect(store.settings.source).toBe('local');
  });
});

describe('the intercept CA of a cluster', () => {
  it('each node of a cluster uses a new intercept CA as soon as another node has replaced or removed the CA', async () => {
    const shared = new FakeSharedStore();
    const a = await interceptCaOver((await nodeOf(shared)).store.interceptCa, 'a');
    const b = await interceptCaOver((await nodeOf(shared)).store.interceptCa, 'b');
    const told: (string | null)[] = [];
    for (const setting of [a, b])
      setting.changed.subscribe((material) => told.push(material?.kind === 'ca' ? material.ca.subject : null));
    await a.generate({ author: 'ops' });
    await expect.poll(() => told.slice(2)).toEqual(Array(2).fill('CN=Weir intercept CA a'));
    await b.generate({ author: 'ops' });
    await expect.poll(() => told.slice(4)).toEqual(Array(2).fill('CN=Weir intercept CA b'));
    await a.remove({});
    await expect.poll(() => told.slice(6)).toEqual([null, null]);
  });
});

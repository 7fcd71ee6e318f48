import { filter, firstValueFrom, Subject } from 'rxjs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Cluster } from '#cluster/cluster.js';
import type { Contradiction } from '#cluster/contradiction.js';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { type Operation, under, type WatchBatch } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { Replica } from '#cluster/replica/replica.js';
import { ReplicaStore } from '#cluster/replica/replica-store.js';
import { UnreadableValues } from '#cluster/unreadable-values.js';
import { encodeJson } from '#store/records/json-value.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { NO_PEERS } from './etcd-cluster.js';
import { etcdOfFile } from './etcd-of-file.js';

const SOON = { withinMs: 5_000 };
const SETTING = 'setting/performance-mode';
const MINE_ID = crypto.randomUUID();
const MINE = Uint8Array.from(encodeJson({ enabled: false }));

const started = etcdOfFile('contra', 1);
const { stops } = started;
let client: EtcdClient;

beforeAll(() => {
  client = new EtcdClient(started.etcd.options);
});
afterAll(() => client?.close());

/** Starts the cluster part of a node over a local store. `ended` resolves with the failure that ends it. */
function follow(kv: KvStore, prefix: string) {
  const self = { id: 'n1', address: '127.0.0.1:1', version: '1.0.0' };
  const cluster = new Cluster(kv, { etcd: started.etcd.options, prefix, self, ...NO_PEERS, local: [], seal: null });
  const ended = new Promise<Contradiction>((resolve) => {
    const following = cluster.follow().subscribe({ error: resolve });
    stops.push(
      () => cluster.store.close(),
      () => following.unsubscribe(),
    );
  });
  return { cluster, ended };
}

/** Creates a cluster with one setting below a prefix, and then ends its part. Returns the local store. */
async function copyOf(prefix: string): Promise<KvStore> {
  const kv = createMemoryStore();
  const { cluster } = follow(kv, prefix);
  await cluster.init(false);
  const following = cluster.follow().subscribe({ error: () => {} });
  await cluster.connectedWithin(5_000);
  await cluster.store.put(SETTING, MINE, { sync: true });
  following.unsubscribe();
  return kv;
}

/** Follows etcd, and expects that the node applies and writes nothing because of a contradiction. */
async function expectHeld(kv: KvStore, prefix: string, code: string): Promise<Cluster> {
  const { cluster, ended } = follow(kv, prefix);
  expect(await ended).toMatchObject({ name: 'Contradiction', code });
  expect([(await cluster.status()).contradiction, await kv.get(SETTING)]).toEqual([code, MINE]);
  await expect(cluster.store.put(SETTING, encodeJson(1), { sync: true })).rejects.toMatchObject({
    code: 'store_unavailable',
  });
  return cluster;
}

const apply = (...operations: Operation[]) => client.transact({ when: [], apply: operations }, SOON);
const putAt = (key: string, value: Uint8Array): Operation => ({ type: 'put', key, value });

test('a node neither applies nor writes anything after etcd was wiped, even if another cluster uses etcd, until an operator recovers the node', async () => {
  const prefix = '/weir/wiped';
  const kv = await copyOf(prefix);
  const { cluster, ended } = follow(kv, prefix);
  await cluster.connectedWithin(5_000);
  await apply({ type: 'delete_range', range: under(`${prefix}/`) });
  expect(await ended).toMatchObject({ code: 'wiped' });
  await expectHeld(kv, prefix, 'wiped');

  const other = follow(createMemoryStore(), prefix).cluster;
  await other.init(false);
  const held = await expectHeld(kv, prefix, 'other_cluster');
  await expect(held.recover('node', 0, false)).rejects.toMatchObject({ code: 'revision_conflict' });
  await held.recover('store', 0, false);
  const recovered = follow(kv, prefix).cluster;
  expect([await recovered.connectedWithin(5_000), await kv.get(SETTING)]).toEqual([true, null]);
});

test('a node replaces a damaged value of its local store by the value from etcd', async () => {
  const prefix = '/weir/damaged';
  const kv = await copyOf(prefix);
  let isDamaged = true;
  const read = async <T>(keys: readonly string[], value: () => Promise<T>): Promise<T> => {
    if (isDamaged && keys.includes(SETTING)) throw new StoreError('store_damaged', 'read', { key: SETTING });
    return value();
  };
  const { cluster } = follow(
    {
      ...kv,
      get: (key) => read([key], () => kv.get(key)),
      getMany: (keys) => read(keys, () => kv.getMany(keys)),
      async *iterate(range) {
        for await (const entry of kv.iterate(range)) yield await read([entry[0]], async () => entry);
      },
      batch: async (operations, options) => {
        await kv.batch(operations, options);
        if (operations.some(({ key }) => key === SETTING)) isDamaged = false;
      },
    },
    prefix,
  );
  expect([await cluster.connectedWithin(5_000), isDamaged]).toEqual([true, false]);
});

test('a node neither applies nor writes anything if etcd lacks the last commit of the node, or has another commit in its place', async () => {
  const prefix = '/weir/forked';
  const keys = new ClusterKeys(prefix);
  const kv = await copyOf(prefix);
  const head = (generation: number, sequence: number, commit: string) =>
    encodeJson({ generation, active: null, ever_activated: true, sequence, commit });
  await kv.put('head', head(5, 3, MINE_ID), { sync: true });

  await apply(putAt(keys.inEtcd('head'), head(4, 2, 'before')));
  await expectHeld(kv, prefix, 'older');
  await apply(putAt(keys.inEtcd('head'), head(6, 4, 'later')), putAt(keys.commit(3), Buffer.from(crypto.randomUUID())));
  await expectHeld(kv, prefix, 'forked');
  await apply(putAt(keys.commit(3), Buffer.from(MINE_ID)));
  const { cluster } = follow(kv, prefix);
  expect(await cluster.connectedWithin(5_000)).toBe(true);
  expect((await cluster.status()).contradiction).toBe(null);
});

test('the local copy of the cluster keys (replica) ignores a watch event of etcd that is older than the last read', async () => {
  const keys = new ClusterKeys('/weir/old');
  const entry = (value: string, modRevision: bigint) => ({
    key: keys.inEtcd(SETTING),
    value: Buffer.from(value),
    createRevision: 1n,
    modRevision,
    lease: 0n,
  });
  const meta = { ...entry('', 1n), key: keys.meta, value: encodeJson({ line: 'l', recoveries: 0, format: 1 }) };
  const events = new Subject<WatchBatch>();
  const fake = {
    range: async (range: { from: string }) => ({
      revision: 10n,
      entries: range.from === keys.shared.from ? [meta, entry('10', 10n)] : [],
    }),
    watch: () => events,
  };
  const kv = new ReplicaStore(createMemoryStore());
  const replica = new Replica(fake as unknown as EtcdClient, kv, keys, new UnreadableValues(keys));
  const following = replica.follow().subscribe();
  await firstValueFrom(replica.connected.pipe(filter((connected) => connected)));
  const event = (value: string, revision: bigint) =>
    events.next({ revision, changes: [{ type: 'put', entry: entry(value, revision) }] });
  event('7', 7n);
  event('10 again', 10n);
  event('11', 11n);
  await replica.until(11n, 1_000);
  event('9', 9n);
  await new Promise((resolve) => setImmediate(resolve));
  expect([Buffer.from((await kv.get(SETTING)) ?? []).toString(), replica.revision]).toEqual(['11', 11n]);
  following.unsubscribe();
});

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { type KeyValue, type Operation, under } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys, chunks } from '#cluster/keys.js';
import { CLUSTER_RECORDS, NODE_RECORDS, REPLICATED_RECORDS } from '#cluster/records.js';
import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
import { RECORDS } from '#store/records/records.js';
import { ProbeFlows } from '#test/chaos/probe-flows.js';
import { ProbedPlaces } from '#test/chaos/probed-places.js';
import { codeOf, numberedValue, policyOf } from '#test/chaos/stored-values.js';
import { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { ClusterNode } from '#test/cluster/node-cluster.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { Random, seedOf } from '#test/seed.js';

/** 10 rounds of 950 values in etcd and 50 in the store of a node are 10,000 values. */
const ROUNDS = Number(process.env.WEIR_ROUNDS ?? 10);
const IN_ETCD = 950;
const IN_STORE = 50;
/** The number of garbage values in the keys `meta` and `head`, each of which delays the nodes by 5 s. */
const HOLDING = 5;
/** The trial fails if, for this time in ms, no node reports a further unreadable value. */
const STALLED_MS = 60_000;
const NODES = ['n1', 'n2'];
/** How often the trial waits for the start of a node: under load, one wait by `serves` is too short. */
const START_ATTEMPTS = 5;
const WITHIN = { withinMs: 10_000 };
const keys = new ClusterKeys('/weir');
const HOLDS = [keys.meta, keys.inEtcd(RECORDS.head.prefix)];
const VALUE = numberedValue(1_234_567);

const random = new Random(seedOf(0x6a7ba6e));
let etcd: EtcdCluster;
let probed: ProbedPlaces;
let leave: () => void;
let client: EtcdClient;
let nodes: readonly ClusterNode[] = [];
let flows: ProbeFlows;

beforeAll(async () => {
  etcd = await EtcdCluster.start('garbage', 1, ['--max-request-bytes=12000000', '--quota-backend-bytes=8000000000']);
  leave = enterNamespace(etcd.namespace);
  client = new EtcdClient(etcd.options);
  probed = await ProbedPlaces.create(etcd, NODES);
  nodes = NODES.map((id, index) => new ClusterNode(id, index, etcd, {}, probed.places[index]));
  for (const node of nodes) {
    node.start();
    await served(node);
  }
  expect((await nodes[0]?.request('POST', '/api/v1/cluster/init'))?.status).toBe(200);
  for (const node of nodes) {
    await node.takesPart(60_000);
    await node.passes('dataplane_running', 60_000);
  }
  const reply = await nodes[0]?.request('PUT', '/api/v1/policy?wait=all', policyOf(VALUE));
  expect(reply?.status).toBe(200);
  flows = await ProbeFlows.start(probed.probes);
}, 300_000);
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.end()));
  client?.close();
  await probed?.remove();
  leave?.();
  await etcd?.remove();
}, 60_000);

async function served(node: ClusterNode): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await node.serves();
    } catch (failure) {
      if (attempt === START_ATTEMPTS || node.crashes.length > 0) throw failure;
    }
  }
}

/** Repeats a request once if it fails because the kept connection leads to a killed process of the node. */
async function connected<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (failure) {
    if (!(failure instanceof TypeError)) throw failure;
    return ask();
  }
}

const word = (): string => random.word().toString(36);
const apply = (operations: readonly Operation[]) => client.transact({ when: [], apply: operations }, WITHIN);
const everything = async () => (await client.range(under('/weir/'), WITHIN)).entries;

/** Returns a value that fits no kind of record. `value`: the value that it replaces. */
function garbageFor(value: Uint8Array | undefined): Uint8Array {
  const kinds = [
    () => Buffer.from(Array.from({ length: random.below(200) }, () => random.below(256))),
    () => Buffer.from(random.pick(['', '{}', 'null', '[]', '[null]', 'true', '-1', '"', '{"id":{}}', '{"node":7}'])),
    () => Buffer.alloc(random.pick([100, 10_000, 100_000]), '['),
    () => Buffer.from(value ?? '{').subarray(0, -1),
    () => {
      const fields = Object.keys(objectIn(value));
      const wrong = fields.length === 0 ? {} : { [random.pick(fields)]: [{ [word()]: word() }] };
      return Buffer.from(JSON.stringify({ ...objectIn(value), ...wrong, id: [] }));
    },
  ];
  return random.chance(0.001) ? Buffer.alloc(10_000_000, '1') : random.pick(kinds)();
}

function objectIn(value: Uint8Array | undefined): object {
  try {
    const json: unknown = JSON.parse(Buffer.from(value ?? []).toString());
    return typeof json === 'object' && json !== null && !Array.isArray(json) ? json : {};
  } catch {
    return {};
  }
}

/** Without a common sealing key, each node has an intercept CA of its own. */
const REPLICATED = REPLICATED_RECORDS.filter((kind) => kind !== RECORDS.interceptCa);
const SHARED = [...REPLICATED, CLUSTER_RECORDS.leader, CLUSTER_RECORDS.lockEntry].map(
  ({ prefix }) => `${keys.shared.from}${prefix}`,
);
const OTHERS = [CLUSTER_RECORDS.member, CLUSTER_RECORDS.vote, CLUSTER_RECORDS.report, RECORDS.history, RECORDS.parts];
const PREFIXES = [...SHARED, ...OTHERS.map(({ prefix }) => `/weir/${prefix}`), '/weir/part/', '/weir/commit/'];

/** Returns a key: one that exists, or a new one of any kind. */
function keyOf(entries: readonly KeyValue[]): string {
  const found = random.chance(0.5) ? random.pick(entries).key : random.pick(PREFIXES);
  const key = found.endsWith('/') ? found + word() : found;
  return HOLDS.includes(key) ? `${keys.shared.from}policy/${word()}` : key;
}

/** Returns the keys whose values the log of a node reports as unreadable. */
function toldBy(node: ClusterNode): ReadonlySet<string> {
  const lines = readFileSync(node.logFile, 'utf8').split('\n');
  const told = lines.filter((line) => line.includes('"value_unreadable"'));
  return new Set(told.map((line) => (JSON.parse(line) as { readonly key: string }).key));
}

/** Returns whether every node reads this key, so that it must report an unreadable value. */
const isRead = (key: string): boolean =>
  key.startsWith(keys.members.from) ||
  SHARED.some((prefix) => (prefix.endsWith('/') ? key.startsWith(prefix) : key === prefix));

/** Writes garbage to random keys in the store of a stopped node. Returns a function that undoes this. */
async function spoilStore(node: ClusterNode): Promise<() => Promise<void>> {
  const folder = join(node.folder, 'data', 'store');
  const kv = await openRocksDbStore(folder);
  const before = new Map<string, Uint8Array | null>();
  for await (const [key, value] of kv.iterate({ gte: '', lt: '\u{10ffff}' })) before.set(key, value);
  const known = [...before.keys()];
  const prefixes = [...Object.values(RECORDS), ...Object.values(NODE_RECORDS)].map(({ prefix }) => prefix);
  const written: string[] = [];
  for (let count = 0; count < IN_STORE; count++) {
    const found = random.chance(0.5) ? random.pick(known) : random.pick([...prefixes, 'kubernetes/', 'part/']);
    const key = found.endsWith('/') ? found + word() : found;
    await kv.put(key, garbageFor(before.get(key) ?? undefined), { sync: false });
    written.push(key);
  }
  await kv.close();
  return async () => {
    const again = await openRocksDbStore(folder);
    for (const key of written) {
      const value = before.get(key) ?? null;
      if (value === null) await again.delete(key, { sync: false });
      else await again.put(key, value, { sync: false });
    }
    await again.close();
  };
}

/** Restores the earlier value of each key. Keys with a lease are left out: their nodes write them again. */
async function heal(before: readonly KeyValue[]): Promise<void> {
  const values = new Map(before.filter(({ lease }) => lease === 0n).map(({ key, value }) => [key, value]));
  const present = await everything();
  const operations = present.flatMap(({ key, value, lease }): Operation[] => {
    const old = values.get(key);
    if (old === undefined) return lease === 0n ? [{ type: 'delete', key }] : [];
    return Buffer.compare(old, value) === 0 ? [] : [{ type: 'put', key, value: old }];
  });
  for (const page of chunks(operations, 50)) await apply(page);
}

const crashes = () => nodes.flatMap((node) => node.crashes);

test('10,000 random values in random keys of etcd and of the stores end no process and no enforcement, and a node reports each damage', async () => {
  const figures = { inEtcd: 0, inStores: 0, told: 0, starts: 0, longestStartMs: 0 };
  for (let round = 0; round < ROUNDS; round++) {
    const before = await everything();
    const starting = nodes[round % nodes.length];
    if (starting === undefined) throw new Error('there is no node');
    await starting.end();
    const mend = await spoilStore(starting);
    figures.inStores += IN_STORE;
    let isStarted = false;
    for (let count = 0; count < IN_ETCD; ) {
      if (!isStarted && count >= IN_ETCD - 200) {
        starting.start();
        isStarted = true;
      }
      const written = new Set(Array.from({ length: Math.min(10, IN_ETCD - count) }, () => keyOf(before)));
      await apply(
        [...written].map((key): Operation => {
          const value = garbageFor(before.find((entry) => entry.key === key)?.value);
          return { type: 'put', key, value };
        }),
      );
      count += written.size;
    }
    figures.inEtcd += IN_ETCD;
    for (let count = 0; count < HOLDING; count++) {
      const key = random.pick(HOLDS);
      await apply([{ type: 'put', key, value: garbageFor(before.find((entry) => entry.key === key)?.value) }]);
    }
    figures.inEtcd += HOLDING;
    const began = performance.now();
    await served(starting);
    figures.longestStartMs = Math.max(figures.longestStartMs, performance.now() - began);
    figures.starts += 1;
    expect([round, crashes()]).toEqual([round, []]);

    // A node with garbage in place of its identity or state does not take part until the value is restored.
    await starting.end();
    await mend();
    starting.start();
    await served(starting);
    await heal(
      before
        .filter(({ key }) => HOLDS.includes(key))
        .concat((await everything()).filter(({ key }) => !HOLDS.includes(key))),
    );
    const garbage = (await everything()).filter((entry) => {
      const old = before.find(({ key }) => key === entry.key);
      return (
        isRead(entry.key) && entry.lease === 0n && (old === undefined || Buffer.compare(old.value, entry.value) !== 0)
      );
    });
    let [least, progressAt] = [Number.POSITIVE_INFINITY, performance.now()];
    for (; ; await pause(200)) {
      // A node reads the list of cluster members from etcd at each scrape of its metrics.
      await Promise.all(nodes.map((node) => connected(() => node.request('GET', '/metrics'))));
      const present = new Map((await everything()).map(({ key, value }) => [key, value]));
      const still = garbage.filter(({ key, value }) => Buffer.compare(present.get(key) ?? Buffer.of(), value) === 0);
      const untold = nodes.flatMap((node) => {
        const told = toldBy(node);
        return still.filter(({ key }) => !told.has(key)).map(({ key }) => `${node.id} ${key}`);
      });
      if (untold.length === 0) break;
      if (untold.length < least) [least, progressAt] = [untold.length, performance.now()];
      if (performance.now() - progressAt > STALLED_MS) {
        const checks = nodes.map((node) =>
          node.check('policy_replication').then(({ detail }) => `${node.id}: ${detail}`),
        );
        const states = (await Promise.all(checks.map((check) => check.catch(String)))).join('\n');
        throw new Error(`round ${round}: ${untold.length} not told: ${untold.slice(0, 20).join('\n')}\n${states}`);
      }
    }
    figures.told += garbage.length;

    await heal(before);
    for (const node of nodes) await connected(() => node.takesPart(60_000));
    expect([round, crashes()]).toEqual([round, []]);
  }
  const ticks = await flows.end();
  const allowed = codeOf(VALUE);
  const leaks = ticks.filter((tick) => (tick.allowed & ~allowed) !== 0).length;
  const whole = ticks.filter((tick) => tick.allowed === allowed).length;
  process.stdout.write(`garbage: ${JSON.stringify({ ...figures, probes: ticks.length, leaks, whole })}\n`);
  expect(leaks).toBe(0);
  expect(whole / ticks.length).toBeGreaterThan(0.99);
  const reply = await nodes[1]?.request('PUT', '/api/v1/policy?wait=all', policyOf(numberedValue(2_345_678)));
  expect(reply?.status).toBe(200);
}, 1_800_000);

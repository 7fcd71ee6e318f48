import { afterAll, expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { under } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { collect } from '#cluster/writes/collector.js';
import type { PolicyChange } from '#contracts/policy/policy-record.js';
import type { KvStore } from '#store/store-types.js';
import { eventually } from '#test/eventually.js';
import { storedPolicy } from '#test/store/stored-policy.js';
import { etcdOfFile } from './etcd-of-file.js';
import { type MemoryNode, memoryNodes } from './memory-nodes.js';

const SOON = { withinMs: 5_000 };
const AT = '2026-02-01T08:30:00.000Z';
const keys = new ClusterKeys('/weir');
const FENCE = { key: '/weir/none', createRevision: 0n };
const BOUNDS = { revisions: 12, bytes: 2 ** 40 };

const started = etcdOfFile('history', 1);
/** The tests continue with the nodes of the first one. */
const stops: (() => Promise<void> | void)[] = [];
afterAll(async () => {
  for (const stop of stops.reverse()) await stop();
});
const { nodeOf, takesPart } = memoryNodes({
  get etcd() {
    return started.etcd;
  },
  stops,
});
let client: EtcdClient;

async function commit({ cluster, policies }: MemoryNode, change: Omit<PolicyChange, 'generation'>): Promise<void> {
  await cluster.takeWriteLock(AbortSignal.timeout(10_000));
  try {
    await policies.commit({ ...change, generation: (await policies.reservedGeneration()) + 1 });
  } finally {
    cluster.releaseWriteLock();
  }
}

const body = (n: number) => `{"n":${n},"text":"${'x'.repeat(1_000)}"}`;
async function writeRevisions(node: MemoryNode, id: string, from: number, to: number, more = {}): Promise<void> {
  for (let revision = from; revision <= to; revision++) {
    const origin = { via: 'write', comment: `change ${revision}` } as const;
    await commit(node, { put: storedPolicy({ id, revision }, body(revision)), origin, ...more });
  }
}
const revisionsOf = async ({ policies }: MemoryNode, id: string) =>
  (await policies.history(id)).map(({ revision }) => revision);
const downTo = (high: number, low: number) => Array.from({ length: high - low + 1 }, (_, index) => high - index);

/** Returns the texts of all revisions of a policy; throws if a part is missing. */
async function textsOf({ policies }: MemoryNode, id: string): Promise<string[]> {
  const texts: string[] = [];
  for (const { revision } of await policies.history(id)) {
    const stored = await policies.revision(id, revision);
    texts.push(Buffer.from(stored?.body ?? []).toString());
  }
  return texts;
}

async function bodiesIn(kv: KvStore): Promise<string[]> {
  const found: string[] = [];
  for await (const [key] of kv.iterate({ gte: 'part', lt: 'part~' })) found.push(key);
  return found;
}
const bodiesInEtcd = async () => {
  const found = await Promise.all(keys.bodies.map((range) => client.range(range, SOON)));
  return found.flatMap(({ entries }) => entries.map(({ key }) => keys.nameOf(key))).sort();
};

let [one, other, away]: MemoryNode[] = [];
const nodes = () => [one, other, away].filter((node) => node !== undefined);
const nodeAt = (index: number): MemoryNode => {
  const node = nodes()[index];
  if (node === undefined) throw new Error('the node has not started');
  return node;
};

test('all nodes of a cluster have the same history, with the facts of each revision', async () => {
  client = new EtcdClient(started.etcd.options);
  stops.push(() => client.close());
  one = await nodeOf('n1');
  await one.cluster.init(false);
  await takesPart(one);
  other = await nodeOf('n2');
  await takesPart(other);
  away = await nodeOf('n3');
  const leave = await takesPart(away);
  await writeRevisions(one, 'a', 1, 15);
  await writeRevisions(other, 'a', 16, 20);
  for (const node of nodes()) {
    await eventually(async () => expect(await revisionsOf(node, 'a')).toEqual(downTo(20, 1)));
    expect(await node.policies.history('a')).toEqual(await one.policies.history('a'));
    expect((await node.policies.history('a', { limit: 1 }))[0]?.facts).toMatchObject({
      via: 'write',
      comment: 'change 20',
      generation: 20,
    });
  }
  leave();
});

test('old revisions that the leader removes are removed with their policy texts at all nodes, also at a node that was stopped meanwhile', async () => {
  const before = await bodiesIn(nodeAt(1).kv);
  expect((await collect(client, keys, FENCE, BOUNDS)).removed).toBeGreaterThan(8);
  const history = await client.range(under('/weir/history/'), SOON);
  expect(history.entries.length).toBe(12);
  for (const node of [nodeAt(0), nodeAt(1)]) {
    await eventually(async () => expect(await revisionsOf(node, 'a')).toEqual(downTo(20, 9)));
    await eventually(async () => expect(await bodiesIn(node.kv)).toEqual(await bodiesInEtcd()));
    expect(await textsOf(node, 'a')).toEqual(downTo(20, 9).map(body));
  }
  expect(before.length - (await bodiesIn(nodeAt(1).kv)).length).toBe(16);
  expect(await revisionsOf(nodeAt(2), 'a')).toEqual(downTo(20, 1));
  await takesPart(nodeAt(2));
  await eventually(async () => expect(await revisionsOf(nodeAt(2), 'a')).toEqual(downTo(20, 9)));
  await eventually(async () => expect(await bodiesIn(nodeAt(2).kv)).toEqual(await bodiesInEtcd()));
});

test('the leader removes the oldest revisions while the history of all policies is larger than its limit in bytes', async () => {
  const [last] = await nodeAt(0).policies.history('a', { limit: 1 });
  const bytes = last?.facts.bytes ?? 0;
  expect(bytes).toBeGreaterThan(0);
  expect((await collect(client, keys, FENCE, { revisions: 1_000, bytes: 11 * bytes + 20 })).removed).toBe(3);
  for (const node of nodes())
    await eventually(async () => expect(await revisionsOf(node, 'a')).toEqual(downTo(20, 10)));
});

test('the former policy of a pending change stays at all nodes, and comes in force again if the change is reverted', async () => {
  const pending = { terms: { kind: 'confirm', within_ms: 600_000 }, by: 'ann', at: AT } as const;
  await writeRevisions(nodeAt(1), 'a', 21, 40, { pending });
  await collect(client, keys, FENCE, { revisions: 10, bytes: 2 ** 40 });
  for (const node of nodes())
    await eventually(async () => expect(await revisionsOf(node, 'a')).toEqual([...downTo(40, 31), 20]));
  const change = await nodeAt(0).policies.headCommit();
  const end = { change, outcome: 'revert', reason: '', at: AT, by: 'ann', because: 'asked' } as const;
  await nodeAt(0).policies.settle({ ...end, comment: 'DNS was gone' });
  for (const node of nodes()) {
    await eventually(async () => expect((await node.policies.active())?.record.revision).toBe(41));
    expect(Buffer.from((await node.policies.active())?.body ?? []).toString()).toBe(body(20));
    expect((await node.policies.history('a', { limit: 1 }))[0]?.facts).toMatchObject({
      via: 'revert',
      of_revision: 20,
      comment: 'DNS was gone',
    });
  }
});

test('a rollback to an old revision comes into force at all nodes, and stores no further policy text in etcd', async () => {
  const before = await bodiesInEtcd();
  const { record } = storedPolicy({ id: 'a', revision: 42 }, '');
  const origin = { via: 'rollback', of_revision: 33 } as const;
  await commit(nodeAt(1), { put: { record, ofRevision: 33 }, origin });
  expect(await bodiesInEtcd()).toEqual(before);
  for (const node of nodes()) {
    await eventually(async () => expect((await node.policies.active())?.record.revision).toBe(42));
    expect(Buffer.from((await node.policies.active())?.body ?? []).toString()).toBe(body(33));
  }
});

test('an activation and a removal are in the history of all nodes', async () => {
  await commit(nodeAt(0), { put: storedPolicy({ id: 'b', active: false }, '{}') });
  const event = { by: 'ann', at: AT, comment: 'why' };
  await commit(nodeAt(0), { activate: 'b', deactivate: 'a', event });
  await commit(nodeAt(1), { remove: 'b', event });
  for (const node of nodes()) {
    await eventually(async () => expect((await node.policies.history('b'))[0]?.facts.removed).toMatchObject(event));
    const [last, ...others] = await node.policies.history('b');
    expect([last?.facts.activated, others, await node.policies.get('b')]).toEqual([
      { ...event, generation: expect.any(Number) },
      [],
      null,
    ]);
  }
});

test('a node keeps the history of a policy of which etcd has lost all revisions', async () => {
  const before = await revisionsOf(nodeAt(2), 'a');
  await client.transact({ when: [], apply: [{ type: 'delete_range', range: under('/weir/history/a/') }] }, SOON);
  await client.transact({ when: [], apply: [{ type: 'put', key: keys.historySwept, value: Buffer.from('x') }] }, SOON);
  await commit(nodeAt(0), { put: storedPolicy({ id: 'c' }, '{}') });
  await eventually(async () => expect(await revisionsOf(nodeAt(2), 'c')).toEqual([1]));
  expect(await revisionsOf(nodeAt(2), 'a')).toEqual(before);
});

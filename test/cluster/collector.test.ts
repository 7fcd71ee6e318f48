import { createHash } from 'node:crypto';
import { firstValueFrom } from 'rxjs';
import { expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { under } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { fetchBodies } from '#cluster/parts.js';
import { collect } from '#cluster/writes/collector.js';
import type { StoredPolicy } from '#contracts/policy/policy-record.js';
import type { PolicyRow } from '#store/policies/policy-row.js';
import { eventually } from '#test/eventually.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { storedPolicy } from '#test/store/stored-policy.js';
import { etcdOfFile } from './etcd-of-file.js';
import { type MemoryNode, memoryNodes } from './memory-nodes.js';

const SOON = { withinMs: 5_000 };
const keys = new ClusterKeys('/weir');

const started = etcdOfFile('parts', 1);
const { stops } = started;
let client: EtcdClient;

const { nodeOf, takesPart } = memoryNodes(started);

const textOf = (stored: StoredPolicy | null): string => Buffer.from(stored?.body ?? []).toString();

/**
 * Writes a policy while a node holds the write lock. Returns false if the node lost the lock before the
 * commit.
 */
async function write({ cluster, policies }: MemoryNode, body: string): Promise<boolean> {
  await cluster.takeWriteLock(AbortSignal.timeout(10_000));
  try {
    // If the read fails, check the lock as `policyActor` does: another node may have replaced the body.
    const stored = await policies.get('a').catch(async (failure: unknown) => {
      await cluster.confirmWriteLock();
      throw failure;
    });
    const revision = (stored?.record.revision ?? 0) + 1;
    const generation = (await policies.generation()) + 1;
    await policies.commit({ put: storedPolicy({ id: 'a', revision, active: true }, body), generation });
    return true;
  } catch (failure) {
    if ((failure as { code?: string }).code === 'revision_conflict') return false;
    throw failure;
  } finally {
    cluster.releaseWriteLock();
  }
}

/** Whether etcd lacks a part of the present policy. A policy that was replaced meanwhile does not count. */
async function lacksPart(): Promise<boolean> {
  const rowIn = async () => {
    const { entries } = await client.range(keys.shared, SOON);
    return entries.find(({ key }) => keys.local(key) === 'policy/a');
  };
  const row = await rowIn();
  if (row === undefined) return false;
  const { body_sha256: sha256 } = JSON.parse(Buffer.from(row.value).toString()) as PolicyRow;
  try {
    await fetchBodies(client, keys, createMemoryStore(), [sha256]);
    return false;
  } catch {
    return (await rowIn())?.modRevision === row.modRevision;
  }
}

test('the collector of unused policy bodies in etcd removes bodies that no revision needs, and makes the commit of a write under way fail', async () => {
  client = new EtcdClient(started.etcd.options);
  stops.push(() => client.close());
  const node = await nodeOf('n1');
  await node.cluster.init(false);
  await takesPart(node);
  expect(await write(node, '{"a":1}')).toBe(true);
  expect(await write(node, '{"a":2}')).toBe(true);
  const garbage = '/weir/part/00';
  await client.transact({ when: [], apply: [{ type: 'put', key: garbage, value: Buffer.from('x') }] }, SOON);
  await node.cluster.takeWriteLock(AbortSignal.timeout(5_000));
  const change = { put: storedPolicy({ id: 'b' }, '{"a":1}'), generation: 9 };
  const plan = await node.policies.plan(change);
  await node.cluster.rehearse(plan, { generation: 9, record: null, bodySha256: '' });

  const stranger = { key: '/weir/shared/leader', createRevision: 1n };
  expect(await collect(client, keys, stranger)).toEqual({ removed: 0, isComplete: false });
  const fence = { key: '/weir/none', createRevision: 0n };
  expect(await collect(client, keys, fence)).toEqual({ removed: 1, isComplete: true });
  const bodies = await client.range(under('/weir/part'), SOON);
  expect(bodies.entries.map(({ key }) => key).includes(garbage)).toBe(false);
  expect(bodies.entries.length).toBe(4);
  await expect(node.policies.commit(change)).rejects.toMatchObject({ code: 'revision_conflict' });
  node.cluster.releaseWriteLock();
  expect(await write(node, '{"a":3}')).toBe(true);
});

test('a write that was prepared before a write of another node fails with revision_conflict, not with an error about an old policy', async () => {
  const [one, other] = [await nodeOf('n1'), await nodeOf('n2')];
  await takesPart(one);
  await takesPart(other);
  await one.cluster.takeWriteLock(AbortSignal.timeout(5_000));
  await one.cluster.confirmWriteLock();
  const generation = (await one.policies.generation()) + 1;
  const change = { put: storedPolicy({ id: 'c' }, '{"c":1}'), generation };
  const plan = await one.policies.plan(change);
  expect(await write(other, '{"a":4}')).toBe(true);

  const conflict = { code: 'revision_conflict' };
  await expect(one.cluster.confirmWriteLock()).rejects.toMatchObject(conflict);
  const proposal = { generation, record: null, bodySha256: '' };
  await expect(one.cluster.rehearse(plan, proposal)).rejects.toMatchObject(conflict);
  await expect(one.policies.commit(change)).rejects.toMatchObject(conflict);
  one.cluster.releaseWriteLock();
  expect(await write(one, '{"a":5}')).toBe(true);
  expect(await one.policies.get('c')).toBe(null);
});

test('the confirmation of the write lock fails with revision_conflict if the lock entry of the node was removed from etcd', async () => {
  client = new EtcdClient(started.etcd.options);
  stops.push(() => client.close());
  const node = await nodeOf('n1');
  await takesPart(node);
  const stranger = { type: 'put' as const, key: `${keys.lockEntries.from}stranger`, value: Buffer.from('{}') };
  await client.transact({ when: [], apply: [stranger] }, SOON);
  await eventually(async () => {
    await node.cluster.takeWriteLock(AbortSignal.timeout(5_000));
    const { entries } = await client.range(keys.lockEntries, SOON);
    expect(entries.length).toBe(2);
  });
  await node.cluster.confirmWriteLock();

  await client.transact({ when: [], apply: [{ type: 'delete_range', range: keys.lockEntries }] }, SOON);
  await expect(node.cluster.confirmWriteLock()).rejects.toMatchObject({ code: 'revision_conflict' });
  node.cluster.releaseWriteLock();
  expect(await write(node, '{"a":6}')).toBe(true);
});

test('a node that was disconnected during writes and a compaction of etcd first receives the newest policy, then all revisions', async () => {
  const [writer, away] = [await nodeOf('n1'), await nodeOf('away')];
  await takesPart(writer);
  await firstValueFrom(away.cluster.follow());
  for (let round = 10; round < 40; round++) expect(await write(writer, `{"a":${round}}`)).toBe(true);
  await started.etcd.compact();

  const following = away.cluster.follow();
  const read = await new Promise<string>((resolve, reject) => {
    const subscription = following.subscribe({
      next: ({ type }) => {
        if (type === 'replica.caught_up') void away.policies.get('a').then((stored) => resolve(textOf(stored)), reject);
      },
      error: reject,
    });
    stops.push(() => subscription.unsubscribe());
  });
  expect(read).toBe('{"a":39}');
  const expected = await writer.policies.history('a');
  await eventually(async () => expect(await away.policies.history('a')).toEqual(expected));
  for (const { revision } of expected)
    expect(textOf(await away.policies.revision('a', revision))).toBe(
      textOf(await writer.policies.revision('a', revision)),
    );
});

/** Policies that are too large for one transaction: a writer writes only the parts that etcd lacks. */
const BODIES = Array.from({ length: 3 }, (_, index) => {
  const blocks = Array.from({ length: 12_000 }, (_, at) => createHash('sha256').update(`${index} ${at}`).digest('hex'));
  return JSON.stringify({ text: blocks.join('') });
});

test('four nodes that repeatedly write old policies lose no part of a policy while the collector of unused parts runs without a pause', async () => {
  client = new EtcdClient(started.etcd.options);
  stops.push(() => client.close());
  const nodes = await Promise.all(['w1', 'w2', 'w3', 'w4'].map(nodeOf));
  for (const node of nodes) await takesPart(node);
  const begun = performance.now();
  let commits = 0;
  // Continues for 4 s, and for up to 20 s if a busy machine has made at most ten commits.
  const goesOn = (): boolean => performance.now() < begun + (commits > 10 ? 4_000 : 20_000);
  const writing = nodes.map(async (node) => {
    for (let round = 0; goesOn(); round++) {
      if (await write(node, BODIES[round % BODIES.length] ?? '')) commits++;
    }
  });
  const collecting = (async () => {
    while (goesOn()) {
      await client.transact({ when: [], apply: [{ type: 'delete_range', range: under('/weir/history/') }] }, SOON);
      await collect(client, keys, { key: '/weir/none', createRevision: 0n });
    }
  })();
  let missing = 0;
  const reading = (async () => {
    while (goesOn()) if (await lacksPart()) missing++;
  })();
  await Promise.all([...writing, collecting, reading]);
  expect(commits).toBeGreaterThan(10);
  expect(missing).toBe(0);
  const fresh = await nodeOf('fresh');
  await takesPart(fresh);
  expect((await fresh.policies.get('a'))?.body.length).toBeGreaterThan(0);
});

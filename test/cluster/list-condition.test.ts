import { expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { ClusterKeys } from '#cluster/keys.js';
import { collect } from '#cluster/writes/collector.js';
import type { PolicyChange } from '#contracts/policy/policy-record.js';
import { createAssertionStore } from '#store/settings/assertion-store.js';
import { storedPolicy } from '#test/store/stored-policy.js';
import { etcdOfFile } from './etcd-of-file.js';
import { type MemoryNode, memoryNodes } from './memory-nodes.js';

const keys = new ClusterKeys('/weir');
const FENCE = { key: '/weir/none', createRevision: 0n };
const started = etcdOfFile('list-condition', 1);
const { nodeOf, takesPart } = memoryNodes(started);
const listOf = ({ cluster }: MemoryNode) => createAssertionStore(cluster.store, { shared: cluster.store });
const change = (revision: number, more: Partial<PolicyChange> = {}): PolicyChange => ({
  put: storedPolicy({ id: 'a', revision }, `{"n":${revision}}`),
  generation: revision,
  ...more,
});

test('the list of assertions of the node that creates a cluster becomes the list of each node that joins', async () => {
  const one = await nodeOf('n0');
  await createAssertionStore(one.kv).write('ann', undefined, () => [{ id: 'no-ssh', never: { ports: [22] } }]);
  await one.cluster.init(false);
  await takesPart(one);
  const other = await nodeOf('n00');
  await takesPart(other);
  expect(await listOf(other).read()).toMatchObject({ revision: 1, assertions: [{ id: 'no-ssh' }] });
});

test('a policy commit fails if another node has written the list of assertions since the check of the commit', async () => {
  const one = await nodeOf('n1');
  await takesPart(one);
  const other = await nodeOf('n2');
  await takesPart(other);
  const commit = async (planned: PolicyChange, between: () => Promise<unknown>): Promise<string> => {
    await one.cluster.takeWriteLock(AbortSignal.timeout(10_000));
    try {
      await one.policies.plan(planned);
      await between();
      await one.policies.commit(planned);
      return 'committed';
    } catch (failure) {
      return (failure as { code: string }).code;
    } finally {
      one.cluster.releaseWriteLock();
    }
  };
  const write = () => listOf(other).write('ann', undefined, () => []);
  expect(await commit(change(1, { assertions: 1 }), async () => {})).toBe('committed');
  expect(await commit(change(2, { assertions: 1 }), write)).toBe('revision_conflict');
  expect(await commit(change(2, { assertions: 2 }), write)).toBe('revision_conflict');
  expect(await commit(change(2, { assertions: 3 }), async () => {})).toBe('committed');
  // A commit that changes nothing in force needs no list.
  expect(await commit(change(3), write)).toBe('committed');
});

test('the leader keeps a revision that an assertion compares with, and removes no revision while it cannot read the list of assertions', async () => {
  const client = new EtcdClient(started.etcd.options);
  started.stops.push(() => client.close());
  const node = await nodeOf('n3');
  await takesPart(node);
  for (let revision = 4; revision <= 30; revision++) {
    await node.cluster.takeWriteLock(AbortSignal.timeout(10_000));
    await node.policies.commit(change(revision));
    node.cluster.releaseWriteLock();
  }
  const list = { type: 'put' as const, key: keys.inEtcd('setting/assertions') };
  const unreadable = { ...list, value: Buffer.from('{"of":"a newer build"}') };
  await client.transact({ when: [], apply: [unreadable] }, { withinMs: 5_000 });
  const bounds = { revisions: 12, bytes: 2 ** 40 };
  expect(await collect(client, keys, FENCE, bounds)).toEqual({ removed: 0, isComplete: true });
  await listOf(node).write('ann', undefined, () => [{ id: 'r', opens_nothing_since: { revision: 5, policy: 'a' } }]);
  expect((await collect(client, keys, FENCE, bounds)).removed).toBeGreaterThan(0);
  const { entries } = await client.range(keys.history, { withinMs: 5_000, keysOnly: true });
  expect(entries.map(({ key }) => Number(key.split('/').at(-1)))).toEqual([
    5,
    ...Array.from({ length: 12 }, (_, n) => 19 + n),
  ]);
});

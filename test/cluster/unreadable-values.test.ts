import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import type { KeyValue } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { UnreadableValues } from '#cluster/unreadable-values.js';
import { policyOf } from './failure-rig.js';
import type { ClusterNode } from './node-cluster.js';
import { nodesOfFile } from './nodes-of-file.js';

const keys = new ClusterKeys('/weir');
const WITHIN = { withinMs: 5_000 };
const OBJECT = Buffer.from('{}');
const GARBAGE = Buffer.from('garbage');

const started = nodesOfFile(2, 'unread', 1, ['--max-request-bytes=20000000']);
const { nodes, nodeAt } = started;
let client: EtcdClient;

beforeAll(() => {
  client = new EtcdClient(started.etcd.options);
});
afterAll(() => {
  client?.close();
});

const put = (key: string, value: Uint8Array) =>
  client.transact({ when: [], apply: [{ type: 'put', key, value }] }, WITHIN);
const remove = (key: string) => client.transact({ when: [], apply: [{ type: 'delete', key }] }, WITHIN);
async function entryAt(key: string): Promise<KeyValue> {
  const { found } = await client.transact({ when: [], apply: [{ type: 'get', key }] }, WITHIN);
  const entry = found[0]?.[0];
  if (entry === undefined) throw new Error(`etcd has no ${key}`);
  return entry;
}
async function unreadableAt(node: ClusterNode): Promise<readonly string[]> {
  const { body } = await node.request('GET', '/api/v1/cluster');
  return (body as { readonly unreadable: readonly { readonly key: string }[] }).unreadable.map(({ key }) => key);
}
/** Writes a policy at a node, and expects that all nodes have it in force, without waiting for a time-out. */
async function writes(node: ClusterNode, address: string): Promise<void> {
  const began = performance.now();
  const reply = await node.request('PUT', '/api/v1/policy', policyOf(address));
  expect([reply.status, reply.headers.get('weir-nodes'), reply.text]).toEqual([
    200,
    '2/2',
    expect.stringContaining(address),
  ]);
  expect(performance.now() - began).toBeLessThan(2_900);
}
/** Returns the keys of the findings of a node about unreadable values. */
async function foundAt(node: ClusterNode): Promise<readonly unknown[]> {
  const path = '/api/v1/audit/findings/local?finding_type=value_unreadable';
  const { items } = (await node.request('GET', path)).body as { readonly items: readonly Record<string, unknown>[] };
  return items.map(({ target, reason }) => (typeof reason === 'string' && reason !== '' ? target : reason));
}
const crashes = () => nodes.flatMap((node) => node.crashes);

describe('UnreadableValues', () => {
  test('`UnreadableValues` emits to a new subscriber first why values in etcd cannot be read at that time, and then each change', () => {
    const values = new UnreadableValues(keys);
    values.note('a', 'it is not JSON');
    values.note('b', 'it is not JSON');
    values.forget('a');
    const seen: unknown[] = [];
    values.changes.subscribe((change) => seen.push(change));
    values.forget('b');
    expect(seen).toEqual([
      { key: 'b', reason: 'it is not JSON' },
      { key: 'b', reason: null },
    ]);
  });
});

describe('a value of etcd that does not fit', () => {
  const shared = (name: string) => `${keys.shared.from}${name}`;
  const told = [
    ...['token-key/zzz', 'cluster-token/zzz', 'removed-node/zzz', 'cluster-node/zzz', 'policy/zzz'].map(shared),
    ...['integration/zzz', 'setting/performance_mode', 'turn/zzz'].map(shared),
    keys.member('zzz'),
  ];
  /** Keys whose unreadable values no node reports: a commit removes them, or no node reads them now. */
  const untold = [
    ...[shared('change/zzz'), '/weir/vote/n1/t/n2', '/weir/rollout/c/n1', keys.commit(1)],
    ...['history/zzz/000000000001', `part/${'a'.repeat(64)}`].map((key) => keys.inEtcd(key)),
  ];

  test('each node skips and reports unreadable values in etcd, writes policies without delay, and starts with such values in its store', async () => {
    await writes(nodeAt(0), '10.1.0.1');
    for (const key of [...told, ...untold]) await put(key, GARBAGE);
    for (const name of ['cluster-node/yyy', 'cluster-token/yyy', 'policy/yyy']) await put(shared(name), OBJECT);
    await put(keys.member('yyy'), OBJECT);
    await put(shared('policy/xxx'), Buffer.alloc(10_000_000, '1'));
    await put(keys.leader, GARBAGE);
    for (const node of nodes) {
      await expect.poll(() => unreadableAt(node)).toEqual(expect.arrayContaining(told));
      await node.passes('cluster');
      expect((await node.request('GET', '/metrics')).text).toMatch(/^weir_cluster_unreadable_values 1\d$/m);
      await expect.poll(() => foundAt(node)).toEqual(expect.arrayContaining(told));
    }
    // A large value delays the changes that follow it.
    for (const node of nodes) await node.takesPart();
    await writes(nodeAt(0), '10.1.0.2');
    await writes(nodeAt(1), '10.1.0.3');

    await nodeAt(1).end();
    nodeAt(1).start();
    await nodeAt(1).serves();
    await nodeAt(1).takesPart();
    expect((await nodeAt(1).request('GET', '/api/v1/policy')).text).toContain('10.1.0.3');
    await expect.poll(() => unreadableAt(nodeAt(1))).toEqual(expect.arrayContaining(told));
    await writes(nodeAt(1), '10.1.0.4');
    expect(crashes()).toEqual([]);
  });

  test('a node uses a key in etcd again when its unreadable value is replaced, and no longer reports the value when the key is removed', async () => {
    for (const key of [...told, ...untold]) await remove(key);
    for (const name of ['cluster-node/yyy', 'cluster-token/yyy', 'policy/yyy', 'policy/xxx'])
      await remove(shared(name));
    await remove(keys.member('yyy'));
    const path = '/api/v1/settings/performance-mode';
    const mode = { enabled: false, revision: 1, updated_at: '2026-01-02T03:04:05.000Z', updated_by: 'ops' };
    await put(shared('setting/performance_mode'), Buffer.from(JSON.stringify(mode)));
    for (const node of nodes) {
      await expect
        .poll(async () => (await unreadableAt(node)).filter((key) => key.startsWith(keys.shared.from)))
        .toEqual([]);
      await expect.poll(async () => (await node.request('GET', path)).body).toMatchObject({ enabled: false });
    }
  });

  test('a policy record in etcd that cannot be read leaves the policy in force, and the next policy write replaces the record', async () => {
    const { entries } = await client.range({ from: shared('policy/'), to: shared('policy0') }, WITHIN);
    expect(entries).toHaveLength(1);
    const key = entries[0]?.key ?? '';
    await put(key, OBJECT);
    const enforced = async () =>
      (await Promise.all(nodes.map((node) => node.check('policy_ready')))).map(({ ok, state }) => `${ok} ${state}`);
    for (const node of nodes) await expect.poll(() => unreadableAt(node)).toContain(key);
    expect(new Set(await enforced()).size).toBe(1);
    await writes(nodeAt(1), '10.1.0.5');
    await remove(key);
    for (const node of nodes) {
      await node.takesPart();
      await expect.poll(async () => (await node.request('GET', '/api/v1/policy')).text).toContain('10.1.0.5');
    }
    expect(crashes()).toEqual([]);
  });

  test.each(['meta', 'head'])(
    'the nodes neither apply nor write anything while the value of the key %s in etcd cannot be read',
    async (name) => {
      const key = shared(name);
      const { value } = await entryAt(key);
      await put(key, OBJECT);
      for (const node of nodes) {
        const { detail } = await node.until('policy_replication', 'held');
        expect(detail).toContain(`the key ${key} in etcd cannot be read`);
        expect((await node.request('PUT', '/api/v1/policy', policyOf('10.1.0.6'))).status).toBe(503);
        await expect.poll(async () => (await node.request('GET', '/api/v1/policy')).text).toContain('10.1.0.5');
      }
      await put(key, value);
      for (const node of nodes) await node.takesPart();
      await writes(nodeAt(0), '10.1.0.5');
      expect(crashes()).toEqual([]);
    },
  );

  test('a node replaces an unreadable value in its own leader, member or registration key in etcd', async () => {
    const own = [keys.leader, keys.member('n1'), keys.inEtcd('cluster-node/n1')];
    for (const key of own) await put(key, GARBAGE);
    for (const node of nodes) await expect.poll(() => unreadableAt(node)).toEqual([]);
    for (const node of nodes) await node.takesPart();
    await writes(nodeAt(1), '10.1.0.7');
    expect(crashes()).toEqual([]);
  });
});

import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { ClusterKeys } from '#cluster/keys.js';
import { encodeJson } from '#store/records/json-value.js';
import { ProgressClock } from '#test/progress-clock.js';
import type { ClusterNode, Reply } from './node-cluster.js';
import { nodesOfFile } from './nodes-of-file.js';

const policyOf = (address: string) => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'lan',
      mode: 'enforce',
      sources: { ips: [address] },
      rules: [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [443] } }],
    },
  ],
});
const put = (node: ClusterNode, address: string) => node.request('PUT', '/api/v1/policy', policyOf(address));
const generationOf = ({ headers }: Reply): number => Number(headers.get('weir-generation'));

const started = nodesOfFile(3, 'nodes');
const { nodes, nodeAt } = started;

/** Waits until all nodes have the policy of the last write in force. */
async function allHave(address: string, withinMs = 5_000): Promise<void> {
  for (const clock = new ProgressClock(); ; await pause(20)) {
    const read = await Promise.all(nodes.map((node) => node.request('GET', '/api/v1/policy')));
    if (read.every(({ text }) => text.includes(`"${address}"`))) return;
    if (clock.isOver(withinMs))
      throw new Error(`not all nodes have ${address}: ${read.map(({ text }) => text).join('\n')}`);
  }
}

describe('a policy write in a cluster of three nodes', () => {
  test('a policy write in a cluster of three nodes puts the policy in force at each node, with one generation number and one ETag', async () => {
    const reply = await put(nodeAt(0), '10.0.0.1');
    expect([reply.status, reply.headers.get('weir-nodes')]).toEqual([200, '3/3']);
    await allHave('10.0.0.1');
    for (const node of nodes) {
      const read = await node.request('GET', '/api/v1/policy');
      expect([read.text, read.headers.get('etag')]).toEqual([reply.text, reply.headers.get('etag')]);
      await node.takesPart();
    }
  });

  test('a write that changes, adds or removes one source group is tried by each of three nodes before its commit', async () => {
    await put(nodeAt(0), '10.0.1.1');
    const { body } = await nodeAt(0).request('GET', '/api/v1/policies');
    const [record] = (body as { readonly items: readonly { readonly id: string }[] }).items;
    const path = `/api/v1/policies/${record?.id}/source-groups`;
    const group = (address: string) => ({ mode: 'enforce', sources: { ips: [address] }, rules: [] });
    const writes: readonly [number, string, string, unknown?][] = [
      [1, 'PUT', 'lan', group('10.0.1.2')],
      [2, 'PUT', 'more', group('10.0.1.3')],
      [0, 'PUT', 'more', group('10.0.1.4')],
      [1, 'DELETE', 'lan'],
    ];
    for (const [at, method, id, written] of writes) {
      const reply = await nodeAt(at).request(method, `${path}/${id}`, written);
      expect([method, id, reply.status < 300, reply.headers.get('weir-nodes')]).toEqual([method, id, true, '3/3']);
      const headers = { 'weir-min-generation': String(generationOf(reply)) };
      const read = await Promise.all(nodes.map((node) => node.request('GET', '/api/v1/policy', undefined, headers)));
      expect(read.map(({ status, text }) => `${status} ${text}`)).toEqual(Array(3).fill(`200 ${read[0]?.text}`));
    }
    expect((await nodeAt(2).request('GET', '/api/v1/policy')).body).toMatchObject({
      source_groups: [{ id: 'more', sources: { ips: ['10.0.1.4'] } }],
    });
  });

  test('12 concurrent policy writes at three nodes get 12 different generation numbers', async () => {
    const writes = Array.from({ length: 12 }, (_, at) => put(nodeAt(at % 3), `10.0.2.${at}`));
    const replies = await Promise.all(writes);
    expect(replies.map(({ status }) => status)).toEqual(Array(12).fill(200));
    const generations = replies.map(generationOf);
    expect(new Set(generations).size).toBe(12);
    const last = replies.findIndex((reply) => generationOf(reply) === Math.max(...generations));
    await allHave(`10.0.2.${last}`);
  });

  test('each of three nodes returns the same history, list and record of a policy after a write', async () => {
    await put(nodeAt(1), '10.0.3.1');
    await allHave('10.0.3.1');
    const paths = ['/api/v1/policies', '/api/v1/policies/by-name/default', '/api/v1/integrations'];
    for (const path of paths) {
      const read = await Promise.all(nodes.map((node) => node.request('GET', path)));
      expect([path, new Set(read.map(({ status, text }) => `${status} ${text}`)).size]).toEqual([path, 1]);
      expect(read[0]?.status).toBe(200);
    }
  });

  test('each node of a cluster refuses a policy write with 412 if the ETag is of an older revision', async () => {
    const { headers } = await nodeAt(0).request('GET', '/api/v1/policy');
    const etag = headers.get('etag') ?? '';
    expect((await put(nodeAt(1), '10.0.4.1')).status).toBe(200);
    const late = await nodeAt(2).request('PUT', '/api/v1/policy', policyOf('10.0.4.2'), { 'if-match': etag });
    expect(late.status).toBe(412);
  });
});

describe('the performance mode', () => {
  test('the performance mode that one node sets is in force at each node within 1 s, with the source `cluster`', async () => {
    const path = '/api/v1/settings/performance-mode';
    expect((await nodeAt(2).request('PUT', path, { enabled: false })).status).toBe(200);
    await pause(1_000);
    for (const node of nodes)
      expect((await node.request('GET', path)).body).toEqual({ enabled: false, source: 'cluster' });
    expect((await nodeAt(0).request('PUT', path, { enabled: true })).status).toBe(200);
  });
});

describe('a token that one node issued', () => {
  test('a token of one node is accepted by each node, and refused by each node after another node has revoked the token', async () => {
    const issued = await nodeAt(0).request('POST', '/api/v1/tokens', { subject: 'ci', role: 'readonly' });
    const { token, id } = issued.body as { readonly token: string; readonly id: string };
    const statuses = async (): Promise<readonly number[]> => {
      await pause(500);
      const headers = { authorization: `Bearer ${token}` };
      return Promise.all(
        nodes.map(async (node) => (await node.request('GET', '/api/v1/policies', undefined, headers)).status),
      );
    };
    expect(await statuses()).toEqual([200, 200, 200]);
    expect((await nodeAt(2).request('DELETE', `/api/v1/tokens/${id}`)).status).toBe(204);
    expect(await statuses()).toEqual([401, 401, 401]);
  });
});

describe('a node that is frozen for a second', () => {
  const FROZEN_MS = 1_000;
  const write = (query: string, address: string) =>
    nodeAt(0).request('PUT', `/api/v1/policy?rehearse=false${query}`, policyOf(address));
  /** Calls `act` while the last node is frozen for 1 s. Resolves with its result and its duration. */
  const beside = async <T>(act: () => Promise<T>) => {
    nodeAt(2).signal('SIGSTOP');
    const began = performance.now();
    const ended = pause(FROZEN_MS).then(() => nodeAt(2).signal('SIGCONT'));
    const result = await act();
    const took = performance.now() - began;
    await ended;
    return { result, took };
  };

  test('a node that is frozen for a second delays a policy write with `?wait=all`, but not with `?wait=quorum`', async () => {
    nodeAt(2).signal('SIGSTOP');
    const quorum = await write('&wait=quorum', '10.0.8.1');
    nodeAt(2).signal('SIGCONT');
    expect(quorum.status).toBe(200);
    await allHave('10.0.8.1');
    const all = await beside(() => write('&wait=all', '10.0.8.2'));
    expect([all.result.status, all.took >= FROZEN_MS]).toEqual([200, true]);
    expect(all.result.headers.get('weir-warnings')).toBe(quorum.headers.get('weir-warnings'));
    expect((await nodeAt(2).request('GET', '/api/v1/policy')).text).toBe(all.result.text);
  });

  test('a node that was frozen for a second answers a read with `weir-min-generation` only after the policy of that generation is in force', async () => {
    for (let round = 0; round < 3; round++) {
      const { result: written } = await beside(() => write('', `10.0.9.${round}`));
      const headers = { 'weir-min-generation': String(generationOf(written)) };
      const read = await nodeAt(2).request('GET', '/api/v1/policy', undefined, headers);
      expect([read.status, read.text, generationOf(read)]).toEqual([200, written.text, generationOf(written)]);
    }
    const later = { 'weir-min-generation': '999999' };
    const late = await nodeAt(2).request('GET', '/api/v1/policy', undefined, later);
    expect([late.status, late.text]).toEqual([503, expect.stringContaining('generation_not_reached')]);
  });
});

describe('a node that is frozen while it holds the write lock', () => {
  test('a node that is frozen while it holds the write lock delays writes of other nodes by at most 6 s', async () => {
    const [frozen, other] = [nodeAt(0), nodeAt(1)];
    const writing = Promise.allSettled(Array.from({ length: 20 }, (_, at) => put(frozen, `10.0.5.${at}`)));
    await pause(150);
    frozen.signal('SIGSTOP');
    const clock = new ProgressClock();
    const reply = await put(other, '10.0.6.1');
    const took = clock.ms();
    frozen.signal('SIGCONT');
    expect([reply.status, took < 6_000]).toEqual([200, true]);
    await writing;
    await frozen.takesPart();
  });
});

describe('a late entry of the write lock', () => {
  test('an entry of the write lock that etcd applies after its node has released the lock delays other writes by less than 2 s', async () => {
    await put(nodeAt(0), '10.0.8.1');
    const keys = new ClusterKeys('/weir');
    const client = new EtcdClient(started.etcd.options);
    const within = { withinMs: 3_000 };
    try {
      const { entries } = await client.range(keys.members, within);
      const { lease = 0n } = entries.find(({ key }) => key === keys.member('n1')) ?? {};
      const late = { type: 'put' as const, key: keys.lockEntry('late'), value: encodeJson({ node: 'n1' }), lease };
      await client.transact({ when: [], apply: [late] }, within);
    } finally {
      client.close();
    }
    const clock = new ProgressClock();
    expect((await put(nodeAt(1), '10.0.8.2')).status).toBe(200);
    expect(clock.ms()).toBeLessThan(2_000);
    await allHave('10.0.8.2');
  });
});

describe('an outage of etcd', () => {
  test('an outage of etcd leaves the policy in force and reads possible, makes writes fail at once, and needs no repair afterwards', async () => {
    expect((await put(nodeAt(0), '10.0.7.1')).status).toBe(200);
    await allHave('10.0.7.1');
    for (const { name } of started.etcd.members) await started.etcd.signal(name, 'SIGKILL');
    await nodeAt(1).until('policy_replication', 'standing_by', 15_000);
    await nodeAt(1).until('cluster', 'cut_off', 15_000);
    const clock = new ProgressClock();
    const refused = await put(nodeAt(1), '10.0.7.2');
    expect([refused.status, clock.ms() < 1_000]).toEqual([503, true]);
    expect((await nodeAt(1).request('GET', '/api/v1/policy')).text).toContain('10.0.7.1');
    expect((await nodeAt(1).request('GET', '/api/v1/settings/performance-mode')).body).toEqual({
      enabled: true,
      source: 'cluster',
    });

    await nodeAt(2).end();
    nodeAt(2).start();
    await nodeAt(2).serves();
    expect((await nodeAt(2).request('GET', '/api/v1/policy')).text).toContain('10.0.7.1');
    await nodeAt(2).until('policy_ready', 'active');

    for (const { name } of started.etcd.members) started.etcd.startMember(name);
    await started.etcd.healthy();
    for (const node of nodes) await node.takesPart();
    expect((await put(nodeAt(1), '10.0.7.3')).status).toBe(200);
    await allHave('10.0.7.3');
  });
});

describe('a node that has just lost its membership', () => {
  test('a node that has just lost its membership delays a policy write until the node is a member again, and then commits the write', async () => {
    const node = nodeAt(0);
    const client = new EtcdClient(started.etcd.options);
    const keys = new ClusterKeys('/weir');
    const { entries } = await client.range(keys.members, { withinMs: 3_000 });
    client.close();
    const { lease = 0n } = entries.find(({ key }) => key === keys.member(node.id)) ?? {};
    started.etcd.etcdctl('lease', 'revoke', lease.toString(16));
    await node.until('cluster', 'cut_off', 5_000);
    const reply = await put(node, '10.0.9.1');
    expect([reply.status, reply.text]).toEqual([200, expect.stringContaining('10.0.9.1')]);
    await allHave('10.0.9.1');
  });
});

describe('an old backup of etcd restored while the nodes run', () => {
  test('if an old backup of etcd is restored, the nodes keep their policy, refuse writes, report that etcd lacks applied writes, and recover by one command', async () => {
    expect((await put(nodeAt(0), '10.0.8.1')).status).toBe(200);
    const backup = started.etcd.backup();
    for (const octet of [2, 3, 4]) expect((await put(nodeAt(0), `10.0.8.${octet}`)).status).toBe(200);
    await allHave('10.0.8.4');
    const before = generationOf(await nodeAt(0).request('GET', '/api/v1/policy'));
    await started.etcd.restore(backup);
    for (const node of nodes) await node.until('policy_replication', 'held', 30_000);
    for (const node of nodes) {
      expect((await node.request('GET', '/api/v1/policy')).text).toContain('"10.0.8.4"');
      expect((await put(node, '10.0.8.5')).status).toBe(503);
      expect(await node.check('cluster')).toMatchObject({ state: 'contradicted' });
      expect((await node.request('GET', '/metrics')).text).toContain('weir_cluster_contradicted 1');
      const path = '/api/v1/audit/findings/local?finding_type=cluster_contradiction';
      const found = { items: [expect.objectContaining({ reason: 'older', target: 'etcd', count: 1 })] };
      await expect.poll(async () => (await node.request('GET', path)).body).toMatchObject(found);
    }
    const reply = await nodeAt(1).request('POST', '/api/v1/cluster/recover', { keep: 'node' });
    expect([reply.status, reply.body]).toEqual([200, expect.objectContaining({ connected: true })]);
    for (const node of nodes) await node.takesPart(30_000);
    await allHave('10.0.8.4');
    const after = await Promise.all(
      nodes.map(async (node) => generationOf(await node.request('GET', '/api/v1/policy'))),
    );
    expect(after.every((generation) => generation > before)).toBe(true);
    const written = await put(nodeAt(2), '10.0.8.6');
    expect([written.status, written.headers.get('weir-nodes')]).toEqual([200, '3/3']);
    await allHave('10.0.8.6');
  });

  test('the recovery with `keep: store` replaces the policies of all nodes by the policy in the restored backup of etcd', async () => {
    expect((await put(nodeAt(0), '10.0.9.1')).status).toBe(200);
    const backup = started.etcd.backup();
    expect((await put(nodeAt(0), '10.0.9.2')).status).toBe(200);
    await allHave('10.0.9.2');
    const etag = (await nodeAt(0).request('GET', '/api/v1/policy')).headers.get('etag');
    await started.etcd.restore(backup);
    for (const node of nodes) await node.until('policy_replication', 'held', 30_000);
    const reply = await nodeAt(2).request('POST', '/api/v1/cluster/recover', { keep: 'store' });
    expect([reply.status, reply.body]).toEqual([200, expect.objectContaining({ connected: true })]);
    for (const node of nodes) await node.takesPart(30_000);
    await allHave('10.0.9.1');
    expect((await nodeAt(0).request('GET', '/api/v1/policy')).headers.get('etag')).not.toBe(etag);
  });
});

import { describe, expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { ClusterKeys } from '#cluster/keys.js';
import { eventually } from '#test/eventually.js';
import type { ClusterNode, Reply } from './node-cluster.js';
import { nodesOfFile } from './nodes-of-file.js';

const PATH = '/api/v1/assertions';
const noSsh = { id: 'no-ssh', never: { from: ['10.0.0.0/8'], ports: [22] } };
const policyWith = (...ports: readonly number[]) => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'lan',
      mode: 'enforce',
      sources: { cidrs: ['10.0.0.0/8'] },
      rules: ports.map((port) => ({ id: `p${port}`, action: 'allow', match: { proto: 'tcp', dst_ports: [port] } })),
    },
  ],
});
const putPolicy = (node: ClusterNode, ...ports: readonly number[]) =>
  node.request('PUT', '/api/v1/policy', policyWith(...ports));
const putList = (node: ClusterNode, ...assertions: readonly object[]) => node.request('PUT', PATH, { assertions });
const idsIn = ({ body }: Reply) => (body as { items: readonly { id: string }[] }).items.map(({ id }) => id);

const started = nodesOfFile(3, 'assertions');
const { nodes, nodeAt } = started;

/** Waits until each node has this list. */
async function allHave(ids: readonly string[]): Promise<void> {
  for (const node of nodes) await eventually(async () => expect(idsIn(await node.request('GET', PATH))).toEqual(ids));
}

describe('the assertions of a cluster of three nodes', () => {
  test('a list of assertions that one node of a cluster writes is the list of all nodes, with one ETag and the results for the policy in force', async () => {
    expect((await putPolicy(nodeAt(0), 80)).status).toBe(200);
    const written = await putList(nodeAt(1), noSsh, { id: 'ssh', always: { from: ['10.0.0.1'], ports: [22] } });
    expect([written.status, written.headers.get('etag')]).toEqual([200, '"assertions.1"']);
    await allHave(['no-ssh', 'ssh']);
    for (const node of nodes) {
      const read = await node.request('GET', PATH);
      expect([read.headers.get('etag'), read.body]).toMatchObject([
        '"assertions.1"',
        { items: [{ result: 'holds' }, { result: 'broken' }], revision: 1 },
      ]);
    }
    const late = await nodeAt(2).request('PUT', PATH, { assertions: [] }, { 'if-match': '"assertions.0"' });
    expect(late.status).toBe(412);
  });

  test('a write at another node that breaks an assertion is refused, and each node keeps its policy', async () => {
    await putList(nodeAt(0), noSsh);
    await allHave(['no-ssh']);
    const refused = await putPolicy(nodeAt(2), 80, 22);
    expect([refused.status, refused.body]).toMatchObject([
      409,
      { type: 'urn:weir:error:assertion_failed', assertions: [{ id: 'no-ssh', before: 'holds' }] },
    ]);
    for (const node of nodes) expect((await node.request('GET', '/api/v1/policy')).text).not.toContain('p22');
    const passed = await nodeAt(2).request('PUT', '/api/v1/policy?override=no-ssh', policyWith(80, 22));
    expect([passed.status, passed.headers.get('weir-nodes')]).toEqual([200, '3/3']);
    for (const node of nodes)
      await eventually(async () => expect((await node.request('GET', '/api/v1/policy')).text).toContain('p22'));
    const { body } = await nodeAt(0).request('GET', '/api/v1/policies');
    const [record] = (body as { readonly items: readonly { readonly id: string }[] }).items;
    const history = await nodeAt(1).request('GET', `/api/v1/policies/${record?.id}/history?limit=1`);
    expect(history.body).toMatchObject({ items: [{ overrides: ['no-ssh'] }] });
  });

  test('a policy write and a concurrent change of the list have one order: a policy that a committed list refuses is never committed after it', async () => {
    const keys = new ClusterKeys('/weir');
    const client = new EtcdClient(started.etcd.options);
    const counts = { accepted: 0, refused: 0, others: 0 };
    try {
      for (let round = 0; round < 30; round++) {
        await putList(nodeAt(round % 3));
        expect((await putPolicy(nodeAt((round + 1) % 3), 80)).status).toBe(200);
        await allHave([]);
        const [policy, list] = await Promise.all([
          putPolicy(nodeAt((round + 1) % 3), 80, 22, 1_000 + round),
          new Promise((resolve) => setTimeout(resolve, round * 4)).then(() => putList(nodeAt(round % 3), noSsh)),
        ]);
        expect(list.status).toBe(200);
        const { entries } = await client.range(
          { from: keys.inEtcd('setting/assertions'), to: `${keys.inEtcd('setting/assertions')}\0` },
          { withinMs: 5_000 },
        );
        const listRevision = Number(entries[0]?.modRevision);
        if (policy.status === 200) {
          counts.accepted++;
          expect(Number(policy.headers.get('weir-revision')), `round ${round}`).toBeLessThan(listRevision);
        } else if ((policy.body as { type: string }).type === 'urn:weir:error:assertion_failed') counts.refused++;
        else counts.others++;
      }
    } finally {
      client.close();
    }
    // Each order occurred, and a write that lost the race was prepared again.
    expect(Math.min(counts.accepted, counts.refused), JSON.stringify(counts)).toBeGreaterThan(0);
    expect(counts.others, JSON.stringify(counts)).toBe(0);
  });
});

import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { detach } from '#dataplane/thread/detach.js';
import { eventually } from '#test/eventually.js';
import { etcdOfFile } from './etcd-of-file.js';
import { codeOf } from './failure-rig.js';
import { ClusterNode, created } from './node-cluster.js';

const soon = { timeout: 5_000, interval: 20 };

const started = etcdOfFile('ipv6set', 1);
let nodes: readonly ClusterNode[] = [];
const pinPath = () => `/sys/fs/bpf/${started.etcd.namespace}`;

beforeAll(async () => {
  const { etcd } = started;
  execFileSync('ip', ['link', 'add', 'policed0', 'type', 'veth', 'peer', 'name', 'policed1']);
  const dataplane = { interfaces: ['policed0'], program_capacity: 8_192, pin_path: pinPath(), ipv6: 'enforce' };
  nodes = [new ClusterNode('n1', 0, etcd, { dataplane }), new ClusterNode('n2', 1, etcd)];
  for (const node of nodes) node.start();
  await created(nodes);
});
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.end()));
  detach(pinPath());
});

const policyFor = (...cidrs: string[]) => ({
  source_groups: [{ id: 'lan', mode: 'enforce', sources: { cidrs }, default_action: 'allow' }],
});

test('a node without IPv6 policies refuses a policy with IPv6 in the rehearsal, and the cluster shows the setting of each node', async () => {
  const [enforcing, other] = nodes;
  if (enforcing === undefined || other === undefined) throw new Error('there are no nodes');
  expect((await enforcing.request('PUT', '/api/v1/policy', policyFor('10.0.0.0/8'))).status).toBe(200);
  const textAt = async (node: ClusterNode) => (await node.request('GET', '/api/v1/policy')).text;
  const before = await textAt(enforcing);
  const refused = await enforcing.request('PUT', '/api/v1/policy', policyFor('10.0.0.0/8', '2001:db8::/32'));
  expect(codeOf(refused)).toEqual([409, 'member_refused']);
  expect((refused.body as { readonly detail: string }).detail).toMatch(
    /^the node n2 refused the policy: .*\/source_groups\/0\/sources\/cidrs\/1: A policy with IPv6 needs dataplane[.]ipv6: enforce /,
  );
  for (const node of nodes) await eventually(async () => expect(await textAt(node)).toBe(before), soon);
  const { members } = (await other.request('GET', '/api/v1/cluster')).body as {
    readonly members: readonly { readonly id: string; readonly ipv6: string | null }[];
  };
  expect(members.map(({ id, ipv6 }) => [id, ipv6]).sort()).toEqual([
    ['n1', 'enforce'],
    ['n2', null],
  ]);
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig } from './rig.js';

let rig: NodeRig;
let path: string;
const opening = (port: number, more: Readonly<Record<string, unknown>> = {}) => ({
  id: 'clients',
  sources: { ips: [ADDRESSES.client] },
  rules: [{ id: 'open', action: 'allow', match: { proto: 'udp', dst_ports: [port] } }],
  ...more,
});
const others = Array.from({ length: 300 }, (_, index) => ({
  id: `g${index}`,
  sources: { cidrs: [`10.${100 + (index >> 8)}.${index & 255}.0/24`] },
  rules: Array.from({ length: 10 }, (_, rule) => ({
    id: `r${rule}`,
    action: 'allow',
    match: { dst_ips: [`198.51.100.${rule}`], proto: 'tcp', dst_ports: [index + 1] },
  })),
}));

beforeAll(async () => {
  rig = await createRig('groups', [80, 81, 82]);
  const policy = { default_policy: 'deny', source_groups: [...others, opening(80)] };
  const reply = await rig.node.request('POST', '/api/v1/policies', { mode: 'enforce', name: 'groups', policy });
  path = `/api/v1/policies/${(reply.body as { id: string }).id}`;
});
afterAll(() => rig?.remove());

const seen = (): Promise<string[]> => Promise.all([rig.udp(80), rig.udp(81), rig.udp(82)]);
const open = (port: number): string[] => [80, 81, 82].map((one) => (one === port ? 'pong 1' : 'silent 1'));
const put = (group: string, body: unknown, query = '') =>
  rig.node.request('PUT', `${path}/source-groups/${group}${query}`, body);

test('after a write of one source group, its new rules classify the next packet, and the other groups stay unchanged', async () => {
  expect(await seen()).toEqual(open(80));
  const reply = await put('clients', opening(81));
  expect([reply.status, (reply.body as { revision: number }).revision]).toEqual([200, 2]);
  expect(await seen()).toEqual(open(81));
  const stored = (await rig.node.request('GET', path)).body as { policy: unknown };
  expect(stored.policy).toEqual({ default_policy: 'deny', source_groups: [...others, opening(81)] });
});

test('a new source group with priority 0 decides packets before the other groups, and its removal restores the earlier verdicts', async () => {
  const before = (await rig.node.request('GET', path)).body;
  const first = opening(82, { id: 'first', priority: 0, default_action: 'deny' });
  expect((await put('first', first)).status).toBe(201);
  expect(await seen()).toEqual(open(82));
  const read = await rig.node.request('GET', `${path}/source-groups/first`);
  expect([read.status, read.body]).toEqual([200, first]);
  const removed = await rig.node.request('DELETE', `${path}/source-groups/first`, undefined, {
    'if-match': read.headers.get('etag') ?? '',
  });
  expect(removed.status).toBe(204);
  expect(await seen()).toEqual(open(81));
  const after = (await rig.node.request('GET', path)).body as { policy: unknown };
  expect(after.policy).toEqual((before as { policy: unknown }).policy);
});

test('refused writes and dry runs of a source group change no verdict', async () => {
  expect((await put('clients', opening(80, { mode: 'audit' }))).status).toBe(400);
  expect((await put('clients', opening(80), '?dry_run=true')).status).toBe(200);
  expect((await put('clients', opening(80, { id: 'other' }))).status).toBe(400);
  expect(await seen()).toEqual(open(81));
});

test('a written source group stays in force after the node is killed, and the restarted node accepts further writes of the group', async () => {
  await put('clients', opening(82));
  await rig.node.end('SIGKILL');
  expect(await seen()).toEqual(open(82));
  await rig.node.restart();
  await rig.node.ready();
  expect(await seen()).toEqual(open(82));
  expect((await put('clients', opening(80))).status).toBe(200);
  expect(await seen()).toEqual(open(80));
});

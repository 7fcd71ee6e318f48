import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { textAt } from './failure-rig.js';
import { RolloutRig } from './rollout-rig.js';

let rig: RolloutRig;
beforeAll(async () => {
  rig = await RolloutRig.start('rollf');
});
afterAll(() => rig?.remove());

const leaderAt = async (id: string) =>
  ((await rig.node(id).request('GET', '/api/v1/cluster')).body as { leader: string | null }).leader;

test('a roll-out is reverted after its first node was killed, and that node follows after its restart', async () => {
  await rig.put('n1', '10.1.0.1', '?wait=all');
  const before = await rig.agree(1, 5_000);
  await rig.put('n2', '10.1.0.2', '?rollout_share=10&rollout_hold=10m');
  await rig.node('n2').end();
  expect(await rig.agree(before + 2, 40_000, ['n1', 'n3'])).toBe(before + 2);
  expect((await rig.pending('n1')).reverted?.reason).toBe('node n2: it is not a member of the cluster');
  rig.node('n2').start();
  await rig.node('n2').serves();
  expect(await rig.agree(before + 2, 15_000)).toBe(before + 2);
  expect(await textAt(rig.node('n2'))).toContain('10.1.0.1');
});

test('a roll-out is completed by the next cluster leader after the leader was killed', async () => {
  const leader = (await leaderAt('n1')) ?? '';
  const first = rig.nodes.find(({ id }) => id !== leader)?.id ?? '';
  const before = await rig.agree(1, 5_000);
  expect((await rig.put(first, '10.2.0.2', '?rollout_share=10&rollout_hold=8')).status).toBe(200);
  await rig.node(leader).end();
  const others = rig.nodes.map(({ id }) => id).filter((id) => id !== leader);
  expect(await rig.agree(before + 2, 40_000, others)).toBe(before + 3);
  rig.node(leader).start();
  await rig.node(leader).serves();
  await rig.node(leader).takesPart();
  expect(await rig.agree(before + 3, 15_000)).toBe(before + 3);
});

test('a node that a roll-out has not reached keeps the earlier policy, also after kill -9', async () => {
  const before = await rig.agree(1, 5_000);
  expect((await rig.put('n1', '10.3.0.1', '?rollout_share=10&rollout_hold=10m')).status).toBe(200);
  await rig.node('n3').end();
  rig.node('n3').start();
  await rig.node('n3').serves();
  await rig.node('n3').passes('policy_ready');
  expect(await rig.generations()).toEqual({ n1: before + 1, n2: before, n3: before });
  expect((await rig.end('n3', 'confirm')).status).toBe(200);
  expect(await rig.agree(before + 3, 5_000)).toBe(before + 3);
});

test('nodes without etcd revert an unconfirmed change on their own, and agree with the cluster when etcd is back', async () => {
  await rig.put('n1', '10.4.0.1', '?wait=all');
  const before = await rig.agree(1, 5_000);
  await rig.put('n2', '10.4.0.2', '?confirm_within=6&wait=all');
  const began = Date.now();
  await rig.etcd.signal('m1', 'SIGSTOP');
  expect(await rig.agree(before + 2, 40_000)).toBe(before + 2);
  expect(Date.now() - began).toBeGreaterThan(15_000);
  await rig.etcd.signal('m1', 'SIGCONT');
  for (const node of rig.nodes) await node.takesPart(30_000);
  await pause(8_000);
  expect(await rig.agree(before + 2, 1)).toBe(before + 2);
  for (const node of rig.nodes) expect(await textAt(node)).toContain('10.4.0.1');
  expect((await rig.put('n3', '10.4.0.3', '?wait=all')).status).toBe(200);
  expect(await rig.agree(before + 3, 5_000)).toBe(before + 3);
});

test('the first node of a roll-out reverts the change on its own after it has lost etcd, and agrees with the other nodes', async () => {
  await rig.put('n1', '10.5.0.1', '?wait=all');
  const before = await rig.agree(1, 5_000);
  expect((await rig.put('n2', '10.5.0.2', '?rollout_share=10&rollout_hold=10m')).status).toBe(200);
  await rig.cutOff('n2');
  try {
    expect(await rig.agree(before + 2, 40_000, ['n1', 'n3'])).toBe(before + 2);
    expect(await rig.agree(before + 2, 20_000, ['n2'])).toBe(before + 2);
  } finally {
    await rig.reconnect('n2');
  }
  await rig.node('n2').takesPart(30_000);
  expect(await textAt(rig.node('n2'))).toContain('10.5.0.1');
  expect(await rig.agree(before + 2, 5_000)).toBe(before + 2);
});

import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import type { DataplaneStats } from './rig.js';

let topology: Topology | undefined;
let node: NodeProcess | undefined;
afterEach(async () => {
  await node?.remove();
  await topology?.remove();
  [topology, node] = [undefined, undefined];
});

/** Starts a node for the first time while the client pings the server. Returns the numbers of packets. */
async function startUnderTraffic(fallback: 'allow' | 'deny') {
  topology = await createTopology('first');
  const pinging = topology.client.start('ping', ['-n', '-q', '-i', '0.002', '-W', '5', ADDRESSES.server]);
  let printed = '';
  pinging.stdout?.on('data', (text) => {
    printed += text;
  });
  await pause(200);
  node = await startNode(topology, { sections: { policy: { fallback } } });
  await node.ready({ except: ['policy_ready'] });
  await pause(200);
  const ended = once(pinging, 'close');
  pinging.kill('SIGINT');
  await ended;
  const [, sent, received] = /(\d+) packets transmitted, (\d+) received/.exec(printed) ?? [];
  const { body } = await node.request('GET', '/api/v1/stats');
  const { drops } = (body as { dataplane: DataplaneStats }).dataplane;
  return { sent: Number(sent), lost: Number(sent) - Number(received), drops };
}

test('no packet is lost while a node with policy.fallback: allow starts for the first time', async () => {
  const { sent, lost, drops } = await startUnderTraffic('allow');
  expect(sent).toBeGreaterThan(300);
  expect(lost).toBe(0);
  expect(drops).toMatchObject({ no_policy: 0, guard: 0 });
});

test('packets are lost while a node with policy.fallback: deny starts for the first time', async () => {
  expect((await startUnderTraffic('deny')).lost).toBeGreaterThan(50);
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { readWiretap, type WiretapMessage } from './reader.js';
import { createRig, type NodeRig } from './rig.js';

const SOURCES = 200;
const PORTS = 300;
/**
 * Maximum number of floods. The slow reader loses messages only after the buffers on its path are full: two
 * relays, and socket buffers that the kernel lets grow to 32 MiB.
 */
const MAX_FLOODS = 5;
/**
 * Returns a Node.js program that sends one datagram from each of 200 sources to each of 300 ports. Each
 * datagram opens a flow.
 */
const flood = (first: number): string => `
const { createSocket } = require('node:dgram');
(async () => {
  const sockets = await Promise.all(Array.from({ length: ${SOURCES} }, (_, index) => new Promise((resolve) => {
    const socket = createSocket('udp4');
    socket.bind(4000, '20.0.0.' + (index + 1), () => resolve(socket));
  })));
  for (let port = 0; port < ${PORTS}; port++)
    await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.send('x', ${first} + port, '${ADDRESSES.server}', resolve))));
  process.exit(0);
})();`;

let rig: NodeRig;
beforeAll(async () => {
  // The flow table has room for all flows, so that no flow is evicted. Evictions would cause additional
  // messages.
  rig = await createRig('loss', [80], { dataplane: { flow_capacity: 2_097_152 } });
  const { client, node, server } = rig.topology;
  await client.must('ip', 'route', 'add', 'local', '20.0.0.0/24', 'dev', 'lo');
  await node.must('ip', 'route', 'add', '20.0.0.0/24', 'via', ADDRESSES.client);
  const silent = 'add table inet silent; add chain inet silent in { type filter hook prerouting priority raw; }';
  await server.must('nft', `${silent}; add rule inet silent in meta l4proto udp drop`);
  const rules = [{ id: 'any', action: 'allow', match: { proto: 'udp' } }];
  const group = { id: 'clients', mode: 'enforce', sources: { cidrs: ['20.0.0.0/24'] }, rules };
  await rig.put({ default_policy: 'deny', source_groups: [group] });
});
afterAll(() => rig?.remove());

async function counted(): Promise<{
  readonly sent: number;
  readonly lost: number;
  readonly suppressed: number;
  readonly tooSlow: number;
}> {
  const { text } = await rig.node.request('GET', '/metrics');
  const value = (name: string): number =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.split(' ')[1],
    );
  return {
    sent: value('weir_events_sent_total'),
    lost: value('weir_events_lost_total{where="ring"}'),
    suppressed: value('weir_events_lost_total{where="source_share"}'),
    tooSlow: value('weir_wiretap_lost_total{where="reader"}') || 0,
  };
}
const told = (messages: readonly WiretapMessage[], where: string): number =>
  messages.reduce(
    (sum, { type, where: place, count }) => sum + (type === 'lost' && place === where ? Number(count) : 0),
    0,
  );
const got = (messages: readonly WiretapMessage[]): number => messages.filter(({ type }) => type !== 'lost').length;

test('a slow and a fast wiretap reader each get all events that the BPF program sent, as messages or as a count of lost messages', async () => {
  const before = await counted();
  const [fast, slow] = [await readWiretap(rig.node), await readWiretap(rig.node)];
  slow.socket.pause();
  let after = before;
  let floods = 0;
  const lostBySlow = (): number => after.tooSlow - before.tooSlow - told(fast.messages, 'reader');
  while (lostBySlow() === 0 && floods < MAX_FLOODS) {
    await rig.topology.client.must(process.execPath, '-e', flood(10_000 + floods++ * PORTS));
    const asked = floods * SOURCES * PORTS;
    await expect
      .poll(async () => (await counted()).sent - before.sent, { timeout: 10_000 })
      .toBeGreaterThanOrEqual(asked * 0.9);
    const { sent } = await counted();
    // The slow reader must be paused while the node sends all messages of this flood, so the test waits for
    // the fast reader.
    await expect
      .poll(() => got(fast.messages) + told(fast.messages, 'reader'), { timeout: 20_000 })
      .toBe(sent - before.sent);
    after = await counted();
  }
  const sent = after.sent - before.sent;
  slow.socket.resume();
  for (const { messages } of [fast, slow]) {
    await expect.poll(() => got(messages) + told(messages, 'reader')).toBe(sent);
    await expect.poll(() => told(messages, 'kernel')).toBe(after.lost - before.lost);
  }
  expect(sent + after.lost + after.suppressed - before.lost - before.suppressed).toBe(floods * SOURCES * PORTS);
  expect(told(slow.messages, 'reader')).toBeGreaterThan(0);
  const { text } = await rig.node.request('GET', '/metrics');
  expect(text).toMatch(/^weir_wiretap_readers 2$/m);
  for (const { socket } of [fast, slow]) socket.close();
});

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf, type RuleInput } from './rig.js';

const NO_ANSWER = 'refused ETIMEDOUT';
const ALLOW_TCP: RuleInput = { match: { proto: 'tcp', dst_ports: [80] } };
const ALLOW_UDP: RuleInput = { match: { proto: 'udp' } };

let rig: NodeRig;
/** The client and the server are in one IP network, connected by a bridge that has no address. */
beforeAll(async () => {
  rig = await createRig('e2e-br', [80, 81]);
  const { client, node, server } = rig.topology;
  await node.must(
    'sh',
    '-ec',
    `ip link add br0 type bridge forward_delay 0; ip link set br0 up
     for port in lan0 wan0; do ip addr flush dev $port; ip link set $port master br0; done`,
  );
  for (const [space, address] of [
    [client, ADDRESSES.client],
    [server, ADDRESSES.server],
  ] as const)
    await space.must('sh', '-ec', `ip addr flush dev eth0; ip addr add ${address}/16 dev eth0`);
  await rig.put(policyOf([ALLOW_TCP]));
});
afterAll(() => rig?.remove());

const all = (): Promise<unknown[]> => Promise.all([rig.tcp(80), rig.tcp(81), rig.udp(80), rig.ping()]);
const TCP_ONLY = ['open', NO_ANSWER, 'silent 1', false];

describe('a node as a transparent firewall between two ports of a bridge', () => {
  test('a node that polices two ports of a bridge is ready, and the policy decides connections through the bridge', async () => {
    await rig.node.ready();
    expect(await all()).toEqual(TCP_ONLY);
  });

  test('a policy that denies an open connection through a bridge cuts the connection', async () => {
    const pings = rig.topology.client.start(process.execPath, ['-e', SPEAKER, ADDRESSES.server]);
    const heard: string[] = [];
    pings.stdout?.setEncoding('utf8').on('data', (text: string) => heard.push(text));
    await expect.poll(() => heard.length).toBeGreaterThan(3);
    await rig.put(policyOf([ALLOW_UDP]));
    const until = heard.length;
    await new Promise((resolve) => setTimeout(resolve, 500));
    // When the policy changed, at most one answer was on its way to the client.
    expect(heard.length).toBeLessThanOrEqual(until + 1);
    pings.kill('SIGKILL');
    expect(await all()).toEqual([NO_ANSWER, NO_ANSWER, 'pong 1', false]);
  });

  test('a node that polices bridge ports keeps enforcing after `nft flush ruleset`, and restores its nftables table', async () => {
    await rig.put(policyOf([ALLOW_TCP]));
    await rig.topology.node.must('nft', 'flush', 'ruleset');
    expect(await all()).toEqual(TCP_ONLY);
    await expect
      .poll(async () => (await rig.topology.node.run('nft', 'list', 'chain', 'bridge', 'weir', 'guard')).code, {
        timeout: 5_000,
      })
      .toBe(0);
    await rig.node.ready();
  });

  test('the policy on bridge ports stays in force after the node process was killed', async () => {
    await rig.node.end('SIGKILL');
    expect(await all()).toEqual(TCP_ONLY);
    await rig.node.restart();
    await rig.node.ready();
    expect(await all()).toEqual(TCP_ONLY);
  });

  test('packets that a node denies between two bridge ports appear in the findings with their destination address', async () => {
    const { body } = await rig.node.request('GET', `/api/v1/audit/findings/local?dst=${ADDRESSES.server}`);
    const { items } = body as { items: { src: string; dst: string }[] };
    expect(items.length).toBeGreaterThan(0);
  });
});

/** Sends a line every 20 ms over one TCP connection to the echo server, and prints what comes back. */
const SPEAKER = `
const socket = require('node:net').connect(80, process.argv[1]);
socket.on('data', (data) => process.stdout.write(data));
socket.on('error', () => {});
setInterval(() => socket.write('x\\n'), 20);`;

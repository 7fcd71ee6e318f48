import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { onlyFrom } from '#test/dataplane/conversation.js';
import { datapathOptions } from './datapath-options.js';
import { topologyOfFile } from './topology-of-file.js';

/** A host in a network behind the server. The link to this network has an MTU of 1,000 bytes. */
const FAR = '10.77.8.2';
const FAR_MTU = 1_000;
const PORT = 80;
const MIB = 1 << 20;

const topology = topologyOfFile('transit');
let far: string;
let datapath: LocalDatapath;
beforeAll(async () => {
  const { node, server } = topology;
  far = server.name.replace('server', 'far');
  const steps = [
    ['ip', 'netns', 'add', far],
    ['ip', 'link', 'add', 'far0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', far],
    ['ip', 'addr', 'add', '10.77.8.1/24', 'dev', 'far0'],
    ['ip', '-n', far, 'addr', 'add', `${FAR}/24`, 'dev', 'eth0'],
    ['ip', 'link', 'set', 'far0', 'mtu', String(FAR_MTU), 'up'],
    ['ip', '-n', far, 'link', 'set', 'eth0', 'mtu', String(FAR_MTU), 'up'],
    ['ip', '-n', far, 'link', 'set', 'lo', 'up'],
    ['ip', '-n', far, 'route', 'add', 'default', 'via', '10.77.8.1'],
    ['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward'],
  ] as const;
  for (const [command, ...args] of steps) await server.must(command, ...args);
  await node.must('ip', 'route', 'add', '10.77.8.0/24', 'via', ADDRESSES.server);
  await firstLine(server.start(process.execPath, [program('tour-traffic'), 'serve', String(PORT)]));
  await firstLine(
    server.start('nsenter', [
      `--net=/run/netns/${far}`,
      process.execPath,
      program('tour-traffic'),
      'serve',
      String(PORT),
    ]),
  );
});
afterAll(async () => {
  await topology.server.run('ip', 'netns', 'del', far);
});

/** Starts a datapath whose policy allows only the client to open flows. */
function start(more: Partial<DatapathOptions> = {}): void {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, more));
  datapath.open();
  datapath.attach();
  datapath.stage(compile(onlyFrom(parseIpv4Address(ADDRESSES.client) ?? 0)), 1);
  datapath.flip();
}
function end(): void {
  datapath.close();
  detach(topology.pinPath);
}
afterEach(() => topology.client.must('ip', 'route', 'flush', 'cache'));

type Counters = ReturnType<LocalDatapath['stats']>['drops'];
let before: Counters;
/** Returns the drop reasons whose counters have increased since the test began. */
const drops = () =>
  Object.entries(datapath.stats().drops).flatMap(([name, { packets }]) =>
    packets === (before[name]?.packets ?? 0n) ? [] : [name],
  );
const ping = async (to: string, ...args: string[]): Promise<string> =>
  (await topology.client.run('ping', '-n', '-c', '1', '-W', '2', ...args, to)).stdout;

/**
 * Sends `bytes` bytes to an echo server by TCP. Returns the number of bytes that came back within ten
 * seconds.
 */
async function echoed(to: string, bytes: number): Promise<number> {
  const script = `
    const socket = require('node:net').connect(${PORT}, '${to}');
    let count = 0;
    socket.on('data', (data) => { count += data.length; if (count === ${bytes}) end(); });
    const end = () => { console.log(count); process.exit(0); };
    setTimeout(end, 10000);
    socket.end(Buffer.alloc(${bytes}));
  `;
  return Number(await topology.client.must(process.execPath, '-e', script));
}

/** Returns whether an echo server sends a datagram of `bytes` bytes back. */
async function datagram(to: string, bytes: number): Promise<boolean> {
  const script = `
    const socket = require('node:dgram').createSocket('udp4');
    socket.on('message', (message) => { console.log(message.length === ${bytes}); process.exit(0); });
    const ask = () => socket.send(Buffer.alloc(${bytes}), ${PORT}, '${to}');
    setTimeout(() => { console.log(false); process.exit(0); }, 4000);
    setInterval(ask, 300);
    ask();
  `;
  return (await topology.client.must(process.execPath, '-e', script)).trim() === 'true';
}

describe.each([
  ['by the network stack', { forwarding: 'stack' }],
  ['directly', { forwarding: 'direct' }],
  ['with forwarding: auto', { forwarding: 'auto' }],
  ['and polices only lan0', { interfaces: ['lan0'] }],
  ['with police_local', { policeLocal: true }],
] as const)('through a node that forwards %s', (_, more: Partial<DatapathOptions>) => {
  beforeAll(() => start(more));
  afterAll(end);
  beforeEach(() => {
    before = datapath.stats().drops;
  });

  test('fragmented datagrams and their replies pass through a node and arrive', async () => {
    expect(await ping(ADDRESSES.server, '-s', '4000')).toContain('1 received');
    expect(await datagram(ADDRESSES.server, 8_000)).toBe(true);
    expect(drops()).toEqual([]);
  });

  test('hosts learn the MTU of a link behind a node', async () => {
    expect(await ping(FAR, '-M', 'do', '-s', '1400')).toContain(`mtu = ${FAR_MTU}`);
    expect(await echoed(FAR, MIB)).toBe(MIB);
    expect(await datagram(FAR, 4_000)).toBe(true);
    expect(drops()).toEqual([]);
  });

  test('hosts behind a node receive ICMP errors for an expired TTL and for a closed port', async () => {
    expect(await ping(FAR, '-t', '1')).toContain('Time to live exceeded');
    expect(await ping(FAR, '-t', '2')).toContain('Time to live exceeded');
    const { stdout } = await topology.client.run('hping3', '-2', '-n', '-c', '1', '-p', '9', ADDRESSES.server);
    expect(stdout).toContain('ICMP Port Unreachable');
  });

  test('packets with the record-route option pass through a node, and hosts receive ICMP redirects to shorter routes', async () => {
    expect(await ping(ADDRESSES.server, '-R')).toContain(ADDRESSES.nodeWan);
    await topology.client.must('ip', 'route', 'add', '10.77.7.0/24', 'via', ADDRESSES.nodeLan);
    await topology.node.must('ip', 'route', 'add', '10.77.7.0/24', 'via', ADDRESSES.client);
    // With police_local the policy denies the redirect, because the node itself sends the redirect.
    // The kernel doubles the time between two redirects to one host, from 20 ms on.
    await expect
      .poll(() => ping('10.77.7.7', '-W', '0.5'))
      .toContain(more.policeLocal === true ? '0 received' : 'Redirect Host');
    await topology.node.must('ip', 'route', 'del', '10.77.7.0/24');
    await topology.client.must('ip', 'route', 'del', '10.77.7.0/24');
  });

  test('a server cannot open flows to a client through a node if the interface of the server is policed', async () => {
    const { stdout } = await topology.server.run('ping', '-n', '-c', '1', '-W', '0.5', ADDRESSES.client);
    expect(stdout).toContain(more.interfaces === undefined ? '0 received' : '1 received');
  });
});

describe('with forwarding by the network stack', () => {
  beforeEach(() => {
    start();
    before = datapath.stats().drops;
  });
  afterEach(end);

  test('a packet that GRO merged from several segments counts as the number of segments', async () => {
    expect(await echoed(ADDRESSES.server, 16 * MIB)).toBe(16 * MIB);
    const { packets, bytes } = datapath.stats().verdicts.allow;
    expect(Number(bytes)).toBeGreaterThan(2 * 16 * MIB);
    expect(Number(packets)).toBeGreaterThan((2 * 16 * MIB) / 1_460);
    expect(drops()).toEqual([]);
  });

  test('during a SYN flood an established connection continues, and new connections succeed', async () => {
    const flow = topology.client.start(process.execPath, [
      program('tour-traffic'),
      ...['connect', ADDRESSES.server, String(PORT), '--every', '20', '--timeout', '3000'],
    ]);
    const lines: string[] = [];
    flow.stdout?.setEncoding('utf8').on('data', (text: string) => lines.push(...text.split('\n').filter(Boolean)));
    await expect.poll(() => lines.length).toBeGreaterThan(3);
    await topology.client.run('hping3', '-q', '-S', '-n', '-p', '9', '-i', 'u20', '-c', '20000', ADDRESSES.server);
    expect(datapath.stats().verdicts.allow.packets).toBeGreaterThan(20_000n);
    const printed = lines.length;
    await expect.poll(() => lines.length).toBeGreaterThan(printed + 3);
    expect(lines.filter((line) => line.startsWith('silent') || line === 'closed')).toEqual([]);
    expect(await echoed(ADDRESSES.server, 1_000)).toBe(1_000);
    flow.kill('SIGKILL');
  });
});

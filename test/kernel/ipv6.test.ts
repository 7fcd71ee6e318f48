import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { denyAll } from './policies.js';
import { COUNTS_UNSENT, HAS_TCX } from './tcx.js';
import { topologyOfFile } from './topology-of-file.js';
import { Wire } from './wire.js';

let port = 2_222;

const topology = topologyOfFile('v6');
beforeAll(async () => {
  await addIpv6(topology);
});

let datapath: LocalDatapath;
function open(more: Partial<DatapathOptions>): void {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, more));
  datapath.open();
}
function start(more: Partial<DatapathOptions> = {}): void {
  open(more);
  putInForce();
}
function putInForce(): void {
  datapath.attach();
  datapath.stage(denyAll, 1);
  datapath.flip();
}
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
});

const forgetNeighbours = async (): Promise<void> => {
  for (const space of [topology.client, topology.node, topology.server])
    await space.must('ip', '-6', 'neigh', 'flush', 'all');
};

/** Returns the number of packets that the kernel dropped because lan0 could not send them (`tx dropped`). */
async function unsent(): Promise<number> {
  const [link] = JSON.parse(await topology.node.must('ip', '-j', '-s', 'link', 'show', 'dev', 'lan0')) as {
    stats64: { tx: { dropped: number } };
  }[];
  return link?.stats64.tx.dropped ?? Number.NaN;
}

type End = 'client' | 'node' | 'server';
async function reaches(from: End, to: string, dataBytes = 56): Promise<boolean> {
  const { code } = await topology[from].run('ping', '-6', '-n', '-c', '1', '-W', '0.5', '-s', `${dataBytes}`, to);
  return code === 0;
}

const dropped = (): bigint => datapath.stats().drops.ipv6?.packets ?? 0n;

const TO_NODE: readonly [what: string, from: End, to: string][] = [
  ['an address of the link', 'client', IPV6.nodeLan],
  ['an address of another link', 'client', IPV6.nodeWan],
  ['a link-local address', 'client', `${IPV6.linkLocal}%eth0`],
  ['all nodes by multicast', 'client', 'ff02::1%eth0'],
  ['all routers by multicast', 'client', 'ff02::2%eth0'],
  ['the node from its other side', 'server', IPV6.nodeWan],
  ['the client from the node', 'node', IPV6.client],
  ['the server from the node', 'node', IPV6.server],
  ['a link by multicast from the node', 'node', 'ff02::1%wan0'],
];

describe.each<[string, Partial<DatapathOptions>]>([
  [HAS_TCX ? 'tcx' : 'clsact', {}],
  ['clsact', { forceClsact: true }],
  ['direct forwarding, and ipv6: pass', { forwarding: 'direct', ipv6: 'pass' }],
])('IPv6 traffic of a node whose datapath uses %s', (_, options) => {
  test('IPv6 traffic loses no packet when the datapath attaches, except for consecutive packets while the kernel adds clsact', async () => {
    open(options);
    const ping = topology.client.start('ping', ['-6', '-n', '-i', '0.005', IPV6.nodeLan]);
    const received = new Set<number>();
    const answer = / icmp_seq=(\d+) /;
    if (ping.stdout === null) throw new Error('it has no output');
    createInterface(ping.stdout).on('line', (line) => {
      const seq = answer.exec(line)?.[1];
      if (seq !== undefined) received.add(Number(seq));
    });
    const further = async (): Promise<void> => {
      // Wait, so that this thread first reads the replies that arrived while the thread was busy.
      await new Promise((resolve) => setTimeout(resolve, 50));
      const before = Math.max(0, ...received);
      await expect.poll(() => Math.max(0, ...received), { interval: 5 }).toBeGreaterThan(before + 40);
    };
    await further();
    const before = await unsent();
    putInForce();
    await further();
    ping.kill('SIGKILL');
    const lost = Array.from({ length: Math.max(...received) }, (_, at) => at + 1).filter((seq) => !received.has(seq));
    const counted = (await unsent()) - before;
    if (HAS_TCX && options.forceClsact !== true) expect([lost, counted]).toEqual([[], 0]);
    else {
      // While the kernel adds clsact, it removes the queue of the interface. Packets that the interface sends
      // at this moment are lost, so the lost packets must be consecutive.
      expect(lost).toEqual(lost.map((_, at) => (lost[0] ?? 0) + at));
      if (COUNTS_UNSENT) expect(lost.length).toBeLessThanOrEqual(counted);
    }
    expect(dropped()).toBe(0n);
  });

  test('IPv6 passes to and from the node, and is forwarded only with ipv6: pass', async () => {
    start(options);
    await forgetNeighbours();
    const cut: string[] = [];
    for (const [what, from, to] of TO_NODE) if (!(await reaches(from, to))) cut.push(what);
    expect(cut).toEqual([]);
    expect(dropped()).toBe(0n);
    const passes = options.ipv6 === 'pass';
    expect(await reaches('client', IPV6.server)).toBe(passes);
    expect(await reaches('server', IPV6.client)).toBe(passes);
    expect(dropped()).toBe(passes ? 0n : 2n);
  });
});

/**
 * Opens a TCP connection with one line of text at a time, like SSH. Returns a function that sends the next
 * line, and returns whether the line comes back.
 */
async function converse(from: End, to: End, address: string): Promise<() => Promise<boolean>> {
  port++;
  const served = topology[to].start('/usr/bin/python3', [
    '-uc',
    `
import socket
listener = socket.create_server(('${address}', ${port}), family=socket.AF_INET6); print('ready')
s, _ = listener.accept()
while True:
    data = s.recv(100)
    if not data: break
    s.sendall(data)`,
  ]);
  await firstLine(served);
  const asking = topology[from].start('/usr/bin/python3', [
    '-uc',
    `
import socket, sys
s = socket.create_connection(('${address}', ${port}), timeout=2); lines = s.makefile(); print('open')
for line in sys.stdin:
    s.sendall(line.encode())
    try: print(lines.readline().strip())
    except OSError: print('silent')`,
  ]);
  if (asking.stdout === null) throw new Error('it has no output');
  const lines = createInterface(asking.stdout);
  await once(lines, 'line');
  let count = 0;
  return async () => {
    const line = `line ${++count}`;
    const answer = once(lines, 'line');
    asking.stdin?.write(`${line}\n`);
    return (await answer)[0] === line;
  };
}

describe('an established TCP connection over IPv6', () => {
  test.each<[string, End, End, string, Partial<DatapathOptions>]>([
    ['client to node', 'client', 'node', IPV6.nodeLan, {}],
    ['node to client', 'node', 'client', IPV6.client, {}],
    ['server to node', 'server', 'node', IPV6.nodeWan, {}],
    ['client to node, by clsact', 'client', 'node', IPV6.nodeLan, { forceClsact: true }],
    ['client to node, forwarding directly', 'client', 'node', IPV6.nodeLan, { forwarding: 'direct' }],
    ['client to server with ipv6: pass', 'client', 'server', IPV6.server, { ipv6: 'pass' }],
  ])(
    'an established TCP connection over IPv6 continues when the datapath attaches and detaches, and a new connection can be opened (direction: %s)',
    async (_, from, to, address, more) => {
      const say = await converse(from, to, address);
      const answered = [await say()];
      start(more);
      for (let lines = 0; lines < 3; lines++) answered.push(await say());
      datapath.close();
      for (let lines = 0; lines < 2; lines++) answered.push(await say());
      detach(topology.pinPath);
      answered.push(await say());
      expect(answered).toEqual(answered.map(() => true));
      start(more);
      const next = await converse(from, to, address);
      expect(await next()).toBe(true);
      expect(dropped()).toBe(0n);
    },
  );

  test('an established TCP connection over IPv6 through the node gets no more replies after the datapath has attached with ipv6: drop', async () => {
    const say = await converse('client', 'server', IPV6.server);
    const before = await say();
    start();
    expect([before, await say()]).toEqual([true, false]);
    expect(dropped()).toBeGreaterThan(0n);
  });
});

test('the counter of passed non-IPv4 packets counts forwarded IPv6 packets, but not IPv6 packets of the node itself', async () => {
  start({ ipv6: 'pass' });
  await forgetNeighbours();
  // The kernel also sends a few multicast packets of about 100 bytes, at any time. Large packets differ from
  // them: 14 bytes of Ethernet, 40 of IPv6, 8 of ICMP, and the data.
  const data = 1_000;
  const packet = 14 + 40 + 8 + data;
  const passed = (): number => Math.floor(Number(datapath.stats().nonIpv4Passed.bytes) / packet);
  expect(await reaches('client', IPV6.nodeLan, data)).toBe(true);
  expect(passed()).toBe(0);
  expect(await reaches('client', IPV6.server, data)).toBe(true);
  // The node has forwarded the request and the reply.
  expect(passed()).toBe(2);
});

test.each<[string, Partial<DatapathOptions>, boolean]>([
  ['ipv6: pass and non_ipv4: drop', { ipv6: 'pass', nonIpv4: 'drop' }, true],
  ['ipv6: drop and non_ipv4: pass', { ipv6: 'drop', nonIpv4: 'pass' }, false],
])('each of the two settings decides only about its own packets: %s', async (_, options, isForwarded) => {
  start(options);
  await forgetNeighbours();
  expect(await reaches('client', IPV6.server)).toBe(isForwarded);
  const { drops, nonIpv4Passed } = datapath.stats();
  // The kernel also sends a few multicast packets at any time, so the counts can be larger.
  expect([(drops.ipv6?.packets ?? 0n) > 0n, nonIpv4Passed.packets > 1n]).toEqual([!isForwarded, isForwarded]);
  const index = await topology.client.must('sh', '-c', 'ip -o link show eth0 | cut -d: -f1');
  const wire = new Wire(topology.client.name, Number(index));
  // A broadcast with an EtherType for experiments (IEEE 802).
  const frame = Buffer.from(`ffffffffffff02000000006688b5${'00'.repeat(50)}`, 'hex');
  for (let count = 0; count < 3; count++) wire.send(frame);
  wire.close();
  const others = () => {
    const { drops, nonIpv4Passed } = datapath.stats();
    return isForwarded ? drops.non_ipv4?.packets : nonIpv4Passed.packets;
  };
  await expect.poll(others).toBe(3n);
  expect(datapath.stats().drops[isForwarded ? 'ipv6' : 'non_ipv4']?.packets).toBe(0n);
});

describe('IPv6 packets that come in by an interface with forwarding=0', () => {
  afterEach(() => setForwarding(1));
  const setForwarding = (value: number): Promise<string> =>
    topology.node.must('sysctl', '-qw', `net.ipv6.conf.lan0.forwarding=${value}`);

  test.each(['drop', 'pass'] as const)(
    'IPv6 packets from an interface with forwarding=0 reach the node but are not forwarded, with ipv6: %s',
    async (ipv6) => {
      await setForwarding(0);
      // Add the IPv6 addresses again, because an interface without forwarding solicits routers and may lose
      // addresses.
      await addIpv6(topology);
      await setForwarding(0);
      start({ ipv6 });
      await forgetNeighbours();
      expect(await reaches('client', IPV6.nodeLan)).toBe(true);
      expect(await reaches('client', `${IPV6.linkLocal}%eth0`)).toBe(true);
      expect(await reaches('node', IPV6.client)).toBe(true);
      expect(await reaches('client', IPV6.server)).toBe(false);
    },
  );
});

describe('IPv6 packets of the node itself with police_local', () => {
  test('with police_local and ipv6: drop, IPv6 packets of the node itself are dropped, except for neighbour discovery', async () => {
    // A connection of an earlier test still sends its FIN again, which counts as dropped.
    await topology.client.must('ss', '-K', `dst [${IPV6.server}]`);
    start({ policeLocal: true });
    await forgetNeighbours();
    expect(await reaches('client', IPV6.nodeLan)).toBe(false);
    expect(await reaches('node', IPV6.client)).toBe(false);
    // The datapath dropped the client's echo request on input and the node's echo request on output.
    expect(dropped()).toBe(2n);
    expect(await topology.client.must('ip', '-6', 'neigh', 'show', IPV6.nodeLan)).toContain('lladdr');
  });

  test('with police_local and ipv6: pass, IPv6 packets of the node itself pass', async () => {
    start({ policeLocal: true, ipv6: 'pass' });
    expect(await reaches('client', IPV6.nodeLan)).toBe(true);
    expect(await reaches('node', IPV6.client)).toBe(true);
    expect(dropped()).toBe(0n);
  });
});

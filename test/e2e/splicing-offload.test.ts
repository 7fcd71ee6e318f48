import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES, type Topology } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';
import { type Answer, digestOf } from './tcp-peer.js';
import { type Ends, Talkers, transfer, transferBoth } from './tcp-peers.js';

const PORT = 443;
const MB = 1_000_000;
let rig: InspectedRig;
let talkers: Talkers;
beforeAll(async () => {
  rig = await createInspectedRig('offload');
  talkers = await Talkers.at(rig, PORT);
  await rig.put(policyOf([tls(SERVER_NAME)]));
  await rig.node.ready();
});
afterEach(() => talkers.end());
afterAll(() => rig?.remove());

const tls = (sni: string) => ({ match: { proto: 'tcp', dst_ports: [PORT], tls: { sni: [sni] } } });
type Inside = Topology['client'];
const connect = (own?: number): Promise<Ends> => talkers.connect(own);
const offloaded = (own?: number): Promise<Ends> => talkers.offloaded(own);
const isOffloaded = (): Promise<boolean> => talkers.isOffloaded();

test('a TLS connection that transfers much data is offloaded to the datapath (splicing offload), and no byte is lost', async () => {
  const ends = await offloaded();
  await transferBoth(ends, 60 * MB);
  expect(await isOffloaded()).toBe(true);
  const { text } = await rig.node.request('GET', '/metrics');
  expect(Number(/^weir_dataplane_inspected_bytes_total\{way="joined"\} (\d+)/m.exec(text)?.[1])).toBeGreaterThan(
    120 * MB,
  );
});

test('a connection that transfers 10 kB in each direction is not offloaded to the datapath', async () => {
  const ends = await connect();
  await transferBoth(ends, 10_000);
  expect(await isOffloaded()).toBe(false);
});

test('before the splicing offload, an urgent byte is forwarded in line with other data: the receiver reads all 2,001 bytes', async () => {
  const { client, server } = await connect();
  for (const [from, to] of [
    [client, server],
    [server, client],
  ] as const) {
    await from.must('send', 1_000, 1);
    await from.must('urgent');
    await from.must('send', 1_000, 1);
    expect(await to.must('take', 2_001)).toMatchObject({ took: 2_001 });
  }
  await transferBoth({ client, server }, 10_000);
});

test('after a FIN from the client of a connection offloaded to the datapath, the server can still send', async () => {
  const { client, server } = await offloaded();
  await client.must('end');
  expect(await server.must('take', 1)).toMatchObject({ took: 0, end: 'end' });
  await transfer(server, client, 10 * MB, 4);
  await server.must('end');
  expect(await client.must('take', 1)).toMatchObject({ took: 0, end: 'end' });
});

test('after a connection offloaded to the datapath has closed, the client can open another connection from the same port', async () => {
  const own = talkers.nextPort();
  const { client, server } = await offloaded(own);
  await server.must('close');
  expect(await client.must('take', 1)).toMatchObject({ end: 'end' });
  await client.must('close');
  await transferBoth(await offloaded(own), MB);
});

const decided = async (): Promise<number> => {
  const { body } = await rig.node.request('GET', '/api/v1/stats');
  return (body as { readonly tls: { readonly allow: number } }).tls.allow;
};

test.each([
  ['the client', false],
  ['both sides', true],
])(
  'after one or both ends (%s) of a connection offloaded to the datapath disappeared without FIN or RST, a new connection from the same client port is inspected',
  async (_, isServerGone) => {
    const own = talkers.nextPort();
    const { client, server } = await offloaded(own);
    const before = await decided();
    const silent =
      'add table ip hush; add chain ip hush out { type filter hook output priority 0; }; add rule ip hush out tcp flags & (fin | rst) != 0 drop';
    const gone = isServerGone ? [rig.topology.client, rig.topology.server] : [rig.topology.client];
    for (const inside of gone) await inside.must('nft', silent);
    try {
      await client.end();
      if (isServerGone) await server.end();
      // The kernel keeps the sockets after the processes have ended. `ss -K` removes the sockets, so that no
      // FIN or RST follows.
      for (const inside of gone) await inside.must('ss', '-K', `( sport = :${PORT} or dport = :${PORT} )`);
    } finally {
      for (const inside of gone) await inside.must('nft', 'delete table ip hush');
    }
    await transferBoth(await offloaded(own), MB);
    expect(await decided()).toBe(before + 1);
  },
);

test.each(['client', 'server'] as const)(
  'a RST of the %s resets the peer on a connection offloaded to the datapath',
  async (who) => {
    const ends = await offloaded();
    await ends[who].must('reset');
    const other = who === 'client' ? ends.server : ends.client;
    expect(await other.ask('take', 1)).toEqual({ failed: 'ConnectionResetError' });
  },
);

test.each([
  ['spliced between two sockets', connect],
  ['offloaded to the datapath', offloaded],
] as const)(
  'a connection %s transfers no data while a policy denies it, and afterwards all data that was sent in this time',
  async (_, open) => {
    const { client, server } = await open();
    await rig.put(policyOf([tls('another.test')]));
    for (const [from, to, seed] of [
      [client, server, 7],
      [server, client, 8],
    ] as const) {
      await to.must('timeout', 1);
      await from.must('send', 20_000, seed);
      expect(await to.ask('take', 1)).toEqual({ failed: 'TimeoutError' });
    }
    await rig.put(policyOf([tls(SERVER_NAME)]));
    for (const peer of [client, server]) await peer.must('timeout', 20);
    expect(await server.must('take', 20_000)).toMatchObject({ took: 20_000, digest: digestOf(20_000, 7) });
    expect(await client.must('take', 20_000)).toMatchObject({ took: 20_000, digest: digestOf(20_000, 8) });
    await transferBoth({ client, server }, MB);
  },
);

test('while the server of a connection offloaded to the datapath does not read, the client is blocked from sending, and data to the client still passes', async () => {
  const { client, server } = await offloaded();
  await client.must('timeout', 1);
  expect(await client.ask('send', 200 * MB, 5)).toEqual({ failed: 'TimeoutError' });
  expect(await server.must('take', 50_000)).toMatchObject({ took: 50_000 });
  await transfer(server, client, MB, 6);
});

describe('TCP options and the splicing offload', () => {
  const set = (inside: Inside, ...settings: readonly string[]): Promise<string> =>
    inside.must('sysctl', '-qw', ...settings);
  const DEFAULT_RMEM = 'net.ipv4.tcp_rmem=4096 131072 33554432';

  test('data passes a connection offloaded to the datapath whose sides have different TCP window scales', async () => {
    const { client, server } = rig.topology;
    const [before] = await Promise.all([client.must('sysctl', '-n', 'net.ipv4.tcp_rmem')]);
    await set(client, 'net.ipv4.tcp_rmem=4096 65535 65535');
    try {
      await transferBoth(await offloaded(), 20 * MB);
      await set(server, 'net.ipv4.tcp_rmem=4096 65535 65535');
      await transferBoth(await offloaded(), 20 * MB);
    } finally {
      const rmem = before.trim().replaceAll(/\s+/g, ' ');
      await set(client, `net.ipv4.tcp_rmem=${rmem === '' ? DEFAULT_RMEM : rmem}`);
      await set(server, `net.ipv4.tcp_rmem=${rmem === '' ? DEFAULT_RMEM : rmem}`);
    }
  });

  test('a connection is offloaded to the datapath if both sides lack TCP timestamps, but not if only one side lacks timestamps', async () => {
    const { client, server, node } = rig.topology;
    await set(client, 'net.ipv4.tcp_timestamps=0');
    try {
      const ends = await connect();
      await transferBoth(ends, 10 * MB);
      expect(await isOffloaded()).toBe(false);
      await set(node, 'net.ipv4.tcp_timestamps=0');
      await set(server, 'net.ipv4.tcp_timestamps=0');
      await talkers.end();
      await expect.poll(isOffloaded).toBe(true);
      await transferBoth(await offloaded(), 10 * MB);
    } finally {
      for (const inside of [client, node, server]) await set(inside, 'net.ipv4.tcp_timestamps=1');
    }
  });

  test('a connection whose server side has a smaller MSS is not offloaded to the datapath, and its data passes', async () => {
    const { server } = rig.topology;
    const device = (await server.must('sh', '-c', 'ip -o -4 route get 10.77.1.2')).replace(/^.* dev (\S+) .*$/s, '$1');
    await server.must('ip', 'link', 'set', device, 'mtu', '1300');
    try {
      const ends = await connect();
      await transferBoth(ends, 10 * MB);
      expect(await isOffloaded()).toBe(false);
    } finally {
      await server.must('ip', 'link', 'set', device, 'mtu', '1500');
    }
  });
});

test('the client of a connection offloaded to the datapath accepts the ICMP error of the node that reports a smaller path MTU', async () => {
  const { client, server } = await offloaded();
  await transfer(client, server, MB, 8);
  await rig.topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '1200');
  // The datapath caches the next hop and the MTU of a flow for about a second, so the test waits for the new
  // MTU.
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  try {
    await transfer(client, server, 10 * MB, 9);
    const { stdout } = await rig.topology.client.run('ip', 'route', 'get', ADDRESSES.server);
    expect(stdout).toContain('mtu 1200');
  } finally {
    await rig.topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '1500');
    await rig.topology.client.must('ip', 'route', 'flush', 'cache');
  }
});

test('lost segments of a connection offloaded to the datapath are retransmitted', async () => {
  const ends = await offloaded();
  const lossy =
    'add table ip loss; add chain ip loss in { type filter hook prerouting priority 0; }; add rule ip loss in meta l4proto tcp numgen random mod 100 < 2 drop';
  const both = [rig.topology.client, rig.topology.server];
  for (const inside of both) await inside.must('nft', lossy);
  try {
    await transferBoth(ends, 20 * MB);
    const { stdout } = await rig.topology.client.run(
      'nstat',
      '-asz',
      'TcpExtTCPSACKReorder',
      'TcpRetransSegs',
      'TcpExtPAWSEstab',
    );
    expect(stdout).toMatch(/TcpRetransSegs +[1-9]/);
  } finally {
    for (const inside of both) await inside.must('nft', 'delete table ip loss');
  }
});

test('while a third-party nftables hook exists, new connections are not offloaded to the datapath, and connections already offloaded continue', async () => {
  const { node } = rig.topology;
  const ends = await offloaded();
  await node.must('nft', 'add table ip mine; add chain ip mine some { type filter hook forward priority 10; }');
  try {
    await expect.poll(async () => (await rig.node.request('GET', '/api/v1/stats')).text).toContain('"way":"stack"');
    await transferBoth(ends, 10 * MB);
    expect(await isOffloaded()).toBe(true);
    const others = await connect();
    await transferBoth(others, 10 * MB);
    expect(await isOffloaded()).toBe(false);
  } finally {
    await node.must('nft', 'delete table ip mine');
  }
});

test('a connection offloaded to the datapath continues when a large policy makes the node replace its BPF maps by larger maps', async () => {
  const ends = await offloaded();
  const many = Array.from({ length: 3_000 }, (_, index) => ({
    match: { proto: 'udp', dst_ports: [1_000 + index], dst_ips: [`10.9.${index >> 8}.${index & 255}`] },
  }));
  await rig.put(policyOf([tls(SERVER_NAME), ...many]));
  await transferBoth(ends, 10 * MB);
  expect(await isOffloaded()).toBe(true);
});

test('a node that shuts down resets both ends of a connection offloaded to the datapath', async () => {
  const { client, server } = await offloaded();
  const both = [client.ask('take', 1), server.ask('take', 1)];
  await rig.node.end('SIGTERM');
  expect(await Promise.all(both)).toEqual(Array<Answer>(2).fill({ failed: 'ConnectionResetError' }));
  await rig.node.restart();
  await rig.node.ready();
});

test('after kill -9 of the node, both sides of a connection offloaded to the datapath are reset within 6 s, by the next packet, or at the next start', async () => {
  const RESET = { failed: 'ConnectionResetError' };
  /**
   * The datapath forwards offloaded connections for 5 s after the last renewal by the node. This time is 1 s
   * longer, in ms.
   */
  const LAPSED_MS = 6_000;
  const clientSends = await offloaded();
  const [serverSends, clientWakes, serverWakes, idle] = [
    await talkers.anotherOffloaded(),
    await talkers.anotherOffloaded(),
    await talkers.anotherOffloaded(),
    await talkers.anotherOffloaded(),
  ];
  for (const { client, server } of [clientSends, serverSends, clientWakes, serverWakes, idle])
    for (const peer of [client, server]) await peer.must('timeout', 30);

  const busy = Promise.all([
    clientSends.client.ask('send', 1_000_000 * MB, 7),
    clientSends.server.ask('take', 1_000_000 * MB),
    serverSends.server.ask('send', 1_000_000 * MB, 7),
    serverSends.client.ask('take', 1_000_000 * MB),
  ]);
  const waits = Promise.all([idle.client.ask('take', 1), idle.server.ask('take', 1)]);
  const killed = performance.now();
  await rig.node.end('SIGKILL');
  try {
    expect(await busy).toEqual([RESET, RESET, RESET, RESET]);
    expect(performance.now() - killed).toBeLessThan(LAPSED_MS);

    await new Promise((resolve) => setTimeout(resolve, LAPSED_MS - (performance.now() - killed)));
    for (const [from, to] of [
      [clientWakes.client, clientWakes.server],
      [serverWakes.server, serverWakes.client],
    ] as const) {
      const waiting = to.ask('take', 1);
      await from.must('send', 1_000, 7);
      expect([await waiting, await from.ask('take', 1)]).toEqual([RESET, RESET]);
    }
    const open = new Promise((resolve) => setImmediate(() => resolve('open')));
    expect(await Promise.race([waits, open])).toBe('open');
  } finally {
    await rig.node.restart();
  }
  expect(await waits).toEqual([RESET, RESET]);
  await rig.node.ready();
});

test('both ends of a connection offloaded to the datapath are closed or reset when the node restarts', async () => {
  const { client, server } = await offloaded();
  const cut = server.ask('take', 100_000 * MB);
  const sending = client.ask('send', 100_000 * MB, 7);
  await rig.node.restart();
  await rig.node.ready();
  const none = [await sending, await cut].map((answer) => answer.failed ?? answer.end);
  expect(none).not.toContain('open');
});

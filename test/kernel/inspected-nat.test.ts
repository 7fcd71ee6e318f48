import type { Server } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { upstreamBits } from '#dataplane/abi/settings.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { flushConntrack } from './conntrack.js';
import { datapathOptions } from './datapath-options.js';
import { LISTEN, openPlane, PEER_SERVER, peerClient } from './plane.js';
import { type SourceCapture, startSourceCapture } from './source-capture.js';
import { topologyOfFile } from './topology-of-file.js';

/** The port of the node that the node forwards to port 443 of the client. */
const PUBLIC = 9_443;
/** A port of the server that echoes. */
const ECHO = 80;
/** A port of the server that the server refuses by an ICMP error. */
const REFUSED = 444;
/** An address that no host has. */
const SERVICE = '10.99.0.1';
const CHAINS = `add table ip mine
delete table ip mine
add table ip mine
add chain ip mine raw { type filter hook prerouting priority raw; }
add chain ip mine own { type filter hook output priority raw; }
add chain ip mine pre { type nat hook prerouting priority dstnat; }
add chain ip mine post { type nat hook postrouting priority srcnat; }`;
const MASQUERADE = 'add rule ip mine post oifname "wan0" masquerade';
const inspected = compile(policy([group(['0.0.0.0/0'], [rule({ protocol: 6, tls: { mode: 'metadata' } })])]));

const topology = topologyOfFile('inspectnat');
let datapath: LocalDatapath;
let server: Server;
let capture: SourceCapture;
const failures: (string | undefined)[] = [];

beforeAll(async () => {
  for (const host of [topology.server, topology.client]) {
    await firstLine(host.start('/usr/bin/python3', ['-u', '-c', PEER_SERVER]));
  }
  await firstLine(topology.server.start(process.execPath, [program('tour-traffic'), 'serve', String(ECHO)]));
  await topology.server.must(
    'nft',
    `table ip own { chain in { type filter hook input priority 0; tcp dport ${REFUSED} reject; }; }`,
  );
  capture = await startSourceCapture(topology.server, 'eth0');
  server = await openPlane((code) => failures.push(code));
});
afterAll(() => server.close());
beforeEach(async () => {
  await translate(MASQUERADE);
  open();
  datapath.stage(inspected, 1);
  datapath.flip();
  await capture.sources();
});
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
});

function open(): void {
  const options = { interfaces: ['lan0', 'wan0'], forwarding: 'auto', servicePlane: LISTEN, pickupMs: 0 } as const;
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, options));
  datapath.open();
  datapath.attach();
}

const translate = (...rules: readonly string[]): Promise<string> =>
  topology.node.must('nft', [CHAINS, ...rules].join('\n'));

let port = 41_000;
/** Connects from a new port of the client. Returns the address of the client that the server sees, or ''. */
async function dial(from: string = ADDRESSES.client, to: number = 443): Promise<string> {
  const words = ['-c', peerClient([from, ++port], [ADDRESSES.server, to])];
  const { stdout } = await topology.client.run('/usr/bin/python3', ...words);
  return stdout.trim().replace(/:\d+ hello$/, '');
}

async function chainsExist(): Promise<boolean> {
  return (await topology.node.run('nft', 'list', 'chain', 'inet', 'weir', 'upstream_zone')).code === 0;
}

/** Returns the client addresses that have reached the server as source of a packet since the last call. */
async function leaked(): Promise<string[]> {
  const sources = await capture.sources();
  return Object.keys(sources).filter((source) => /^10\.77\.[13]\./.test(source));
}

describe('behind masquerade', () => {
  test('behind masquerade, an inspected connection reaches the server from the address of the node', async () => {
    for (let round = 0; round < 5; round++) expect(await dial()).toBe(ADDRESSES.nodeWan);
    expect(await leaked()).toEqual([]);
    expect(datapath.stats().activeFlows).toBe(0);
  });

  test('behind masquerade, a client can connect again from the same port after the node closed the inspected connection first', async () => {
    for (let round = 0; round < 5; round++) {
      port = 40_000;
      expect(await dial()).toBe(ADDRESSES.nodeWan);
    }
    expect(await leaked()).toEqual([]);
  });

  test("behind masquerade, an ICMP error about the node's connection to the server reaches the socket of that connection", async () => {
    failures.length = 0;
    expect(await dial(ADDRESSES.client, REFUSED)).toBe('');
    expect(failures).toEqual(['ECONNREFUSED']);
    expect(await leaked()).toEqual([]);
  });

  test('behind masquerade, an inspected connection continues after conntrack was flushed', async () => {
    const words = ['connect', ADDRESSES.server, String(ECHO), '--every', '200', '--timeout', '5000'];
    const child = topology.client.start(process.execPath, [program('tour-traffic'), ...words]);
    const lines: string[] = [];
    child.stdout?.on('data', (data: Buffer) => lines.push(...data.toString().trim().split('\n')));
    for (const next of ['pong 1', 'pong 2', 'pong 3']) {
      await expect.poll(() => lines.at(-1), { interval: 5 }).toBe(next);
      // Flush conntrack after each response, so that the client sends the next packet after the flush.
      flushConntrack();
    }
    await expect.poll(() => lines).toContain('pong 5');
    child.kill();
    expect(await leaked()).toEqual([]);
  });

  test('behind masquerade, no packet leaves with the address of the client while conntrack is flushed during transfers', async () => {
    const flushing = setInterval(flushConntrack, 3);
    const program = `
import socket
for port in range(43000, 43006):
  s=socket.socket(); s.setsockopt(1,2,1); s.bind(('${ADDRESSES.client}',port)); s.settimeout(0.5)
  try:
    s.connect(('${ADDRESSES.server}',${ECHO}))
    for _ in range(40):
      s.sendall(bytes(100000)); n=0
      while n<100000: n+=len(s.recv(100000)) or 100000
  except OSError: pass
  s.close()`;
    await topology.client.run('/usr/bin/python3', '-c', program);
    clearInterval(flushing);
    expect(await leaked()).toEqual([]);
    expect(await dial()).toBe(ADDRESSES.nodeWan);
  });

  test('without the nftables chains of the conntrack zone, no packet leaves with the address of the client, and a check reports the lost chains', async () => {
    await topology.node.must('nft', ['flush ruleset', CHAINS, MASQUERADE].join('\n'));
    expect(await chainsExist()).toBe(false);
    expect(await dial()).toBe('');
    expect(await leaked()).toEqual([]);
    expect(datapath.look()).toContainEqual({ type: 'guard_lost' });
    datapath.attach();
    expect(await dial()).toBe(ADDRESSES.nodeWan);
  });

  test('a packet to a server leaves by an unpoliced interface only if conntrack has an entry for the packet', async () => {
    const { node } = topology;
    await node.must('ip', 'link', 'add', 'other0', 'type', 'veth', 'peer', 'name', 'other1');
    onTestFinished(async () => void (await node.run('ip', 'link', 'del', 'other0')));
    await node.must('ip', 'addr', 'add', '10.88.0.1/24', 'dev', 'other0');
    for (const name of ['other0', 'other1']) await node.must('ip', 'link', 'set', name, 'up');
    await node.must('ip', 'neigh', 'add', '10.88.0.2', 'lladdr', '02:00:00:00:00:02', 'dev', 'other0');
    await node.must(
      'nft',
      `add table ip seen
add counter ip seen left
add chain ip seen out { type filter hook postrouting priority 0; }
add rule ip seen out oifname "other0" counter name left`,
    );
    onTestFinished(() => void node.run('nft', 'delete', 'table', 'ip', 'seen'));
    /** Sends a TCP packet with this mark and these flags from the node. Returns 1 if it leaves, else 0. */
    const leaving = async (mark: number, flags: number): Promise<number> => {
      const program = `import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
s.setsockopt(socket.SOL_SOCKET, 36, ${mark})
try:
  s.sendto(struct.pack('!HHIIBBHHH', 40000, 443, 1, 0, 0x50, ${flags}, 1024, 0, 0), ('10.88.0.2', 0))
except PermissionError: pass`;
      await node.must('/usr/bin/python3', '-c', program);
      return Number(/packets (\d+)/.exec(await node.must('nft', 'reset', 'counters', 'table', 'ip', 'seen'))?.[1]);
    };
    const toServer = upstreamBits(datapathOptions(topology.pinPath).markMask);
    const [syn, invalid] = [2, 6];
    expect(await leaving(toServer, syn)).toBe(1);
    expect(await leaving(0, invalid)).toBe(1);
    expect(await leaving(toServer, invalid)).toBe(0);
  });

  test('the nftables chains for inspection behind masquerade stay while no process runs, and the next process takes them over', async () => {
    datapath.close();
    expect(await chainsExist()).toBe(true);
    open();
    expect(await dial()).toBe(ADDRESSES.nodeWan);
    expect(await leaked()).toEqual([]);
  });

  test('the nftables chains for inspection behind masquerade are removed with the last NAT rule, and by detach', async () => {
    await topology.node.must('nft', 'delete table ip mine');
    datapath.look();
    expect(await chainsExist()).toBe(false);
    await translate(MASQUERADE);
    datapath.look();
    expect(await chainsExist()).toBe(true);
    datapath.close();
    detach(topology.pinPath);
    expect(await chainsExist()).toBe(false);
  });
});

test('behind SNAT, an inspected connection reaches the server from the configured address', async () => {
  await topology.node.must('ip', 'addr', 'add', '10.77.2.9/24', 'dev', 'wan0');
  await translate(
    `add rule ip mine post oifname "wan0" ip saddr ${ADDRESSES.clientOther} snat to 10.77.2.9`,
    MASQUERADE,
  );
  expect(await dial()).toBe(ADDRESSES.nodeWan);
  expect(await dial(ADDRESSES.clientOther)).toBe('10.77.2.9');
  expect(await leaked()).toEqual([]);
});

describe('connections that no NAT rule matches', () => {
  beforeEach(() => translate(`add rule ip mine post oifname "wan0" ip saddr ${ADDRESSES.clientOther} masquerade`));

  test('the server sees the address of the client if no NAT rule matches the inspected connection', async () => {
    expect(await dial()).toBe(ADDRESSES.client);
    expect(await dial(ADDRESSES.clientOther)).toBe(ADDRESSES.nodeWan);
  });

  test('an ICMP error about the connection to the server reaches its socket if no NAT rule matches the connection', async () => {
    failures.length = 0;
    expect(await dial(ADDRESSES.client, REFUSED)).toBe('');
    expect(failures).toEqual(['ECONNREFUSED']);
  });
});

describe('conntrack zones of the operator', () => {
  test("inspection works with an operator's conntrack zone for the direction from the client", async () => {
    await translate(MASQUERADE, 'add rule ip mine raw iifname "lan0" ct original zone set 5');
    expect(await dial()).toBe(ADDRESSES.nodeWan);
  });

  test('connections of the node itself keep the conntrack zone of the operator', async () => {
    await translate(
      MASQUERADE,
      'add rule ip mine own tcp dport 443 ip saddr 10.77.2.1 ct zone set 9',
      'add rule ip mine raw tcp sport 443 tcp dport 45000 ct zone set 9',
    );
    const own = peerClient([ADDRESSES.nodeWan, 45_000], [ADDRESSES.server, 443]);
    expect((await topology.node.run('/usr/bin/python3', '-c', own)).stdout).toBe(`${ADDRESSES.nodeWan}:45000 hello\n`);
    const entries = await topology.node.must('cat', '/proc/net/nf_conntrack');
    expect(entries.split('\n').filter((line) => line.includes('45000'))).toEqual([expect.stringContaining('zone=9')]);
    expect(await dial()).toBe(ADDRESSES.nodeWan);
  });

  test("with an operator's conntrack zone for replies, inspected connections fail, and no packet leaves with the address of the client", async () => {
    await translate(MASQUERADE, 'add rule ip mine raw ct zone set 7');
    expect(await Promise.all(Array.from({ length: 5 }, () => dial()))).toEqual(['', '', '', '', '']);
    expect(await leaked()).toEqual([]);
  });
});

test('without NAT rules, the server of an inspected connection sees the address and port of the client', async () => {
  await topology.node.must('nft', 'delete table ip mine');
  datapath.look();
  const words = ['-c', peerClient([ADDRESSES.client, ++port], [ADDRESSES.server, 443])];
  const { stdout } = await topology.client.run('/usr/bin/python3', ...words);
  expect(stdout).toBe(`${ADDRESSES.client}:${port} hello\n`);
});

describe('behind DNAT', () => {
  test('a connection by DNAT to a server that the policy inspects is not forwarded', async () => {
    const forward = `add rule ip mine pre iifname "wan0" tcp dport ${PUBLIC} dnat to ${ADDRESSES.client}:443`;
    await translate(MASQUERADE, forward);
    const words = ['-c', peerClient([ADDRESSES.server, 42_000], [ADDRESSES.nodeWan, PUBLIC])];
    expect((await topology.server.run('/usr/bin/python3', ...words)).stdout).toBe('');
    // Kernels without the forward judge (netfilter program) drop the packet by the guard instead.
    if (hasNetfilterPrograms()) expect(datapath.stats().drops.not_inspected?.packets).toBeGreaterThan(0n);
  });

  test('an inspected connection by DNAT to a host behind the node reaches neither its destination nor that host', async () => {
    await topology.node.must('ip', 'route', 'add', '10.99.0.0/16', 'via', ADDRESSES.server);
    await translate(MASQUERADE, `add rule ip mine pre ip daddr ${SERVICE} dnat to ${ADDRESSES.server}`);
    // Wait until the clients of the earlier tests, which repeat their SYNs for some seconds, are silent.
    const quiet = async () => Object.keys(await capture.sources());
    await expect.poll(quiet, { interval: 1_200 }).toEqual([]);
    const words = ['-c', peerClient([ADDRESSES.client, 42_001], [SERVICE, 443])];
    expect((await topology.client.run('/usr/bin/python3', ...words)).stdout).toBe('');
    expect(await capture.sources()).toEqual({});
  });
});

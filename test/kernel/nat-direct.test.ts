import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { conntrackKeepMs, hasConntrackLookup, hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { ETHERNET, TCP } from '#test/dataplane/frame.js';
import { eventually } from '#test/eventually.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { conntrackSeconds, flushConntrack } from './conntrack.js';
import { datapathOptions } from './datapath-options.js';
import { forwarded } from './forwarded.js';
import { enterNamespace } from './namespace.js';
import { type SentPacket, textOf } from './nat-frames.js';
import { NatNode, only, tcp, udp } from './nat-node.js';
import { allowAll } from './policies.js';
import { Wire } from './wire.js';

const { client, server, nodeWan } = ADDRESSES;
const PORT = 4_000;
const PUBLIC = 9_000;
const NETFILTER = '/proc/sys/net/netfilter';
/** The settings of conntrack that the node changes, each with its usual value. */
const WINDOW_CHECKS = {
  be_liberal: 0,
  ignore_invalid_rst: 0,
  timeout_unacknowledged: 300,
  timeout_max_retrans: 300,
} as const;
const DAYS = 432_000;
const pathOf = (name: string): string => `${NETFILTER}/nf_conntrack_tcp_${name}`;
const CHAINS = `add table ip mine
delete table ip mine
add table ip mine
add chain ip mine pre { type nat hook prerouting priority -100; }
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine pre iifname "wan0" meta l4proto { tcp, udp } th dport ${PUBLIC} dnat to ${client}:${PORT}
add rule ip mine post oifname "wan0" meta l4proto { tcp, udp } masquerade to :20000-20999`;
/** The time for which an alias (the translation of a flow) is valid, and until a UDP flow is established. */
const ALIAS_MS = 1_050;
const ASSURED_MS = 2_100;

// Conntrack may be a module that no rule has loaded yet.
spawnSync('sh', ['-c', 'modprobe nf_conntrack']);
const direct = hasConntrackLookup() && conntrackKeepMs() !== null;

let node: NatNode;
let port = 30_000;
type Host = 'client' | 'server';
const other = (host: Host): Host => (host === 'client' ? 'server' : 'client');

/** Sends a packet. Returns the frame that the other host receives, and whether the stack has forwarded it. */
async function sent(from: Host, packet: SentPacket) {
  node.datapath.look();
  const before = forwarded();
  node.send(from, packet);
  let frame: Uint8Array | undefined;
  await expect
    .poll(
      () => {
        frame = node.wires[other(from)].seen().find((each) => textOf(each) !== undefined);
        return frame !== undefined;
      },
      { interval: 2, timeout: 3_000 },
    )
    .toBe(true);
  const received = frame as Uint8Array;
  return { text: textOf(received), byStack: forwarded() !== before, frame: received };
}

/** Returns the source port that the node has given a packet to the server. */
const given = (text: string | undefined): number => Number(/:(\d+) > /.exec(text ?? '')?.[1]);

/** Returns the ones' complement sum of a part of a frame. */
function sumOf(frame: Uint8Array, begin: number, end: number): number {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  let sum = 0;
  for (let at = begin; at < end; at += 2) sum += at + 1 < end ? view.getUint16(at) : view.getUint8(at) << 8;
  return sum;
}
const folded = (sum: number): number => (sum > 0xffff ? folded((sum & 0xffff) + (sum >>> 16)) : sum);

/** Checks the checksums of the IPv4 header and of the TCP or UDP header. Returns the TTL. */
function checked(frame: Uint8Array): { readonly ttl: number | undefined; readonly sums: readonly number[] } {
  const l4 = ETHERNET + 20;
  const end = ETHERNET + (((frame[ETHERNET + 2] ?? 0) << 8) | (frame[ETHERNET + 3] ?? 0));
  const protocol = frame[ETHERNET + 9] ?? 0;
  const pseudo = sumOf(frame, ETHERNET + 12, l4) + protocol + end - l4;
  return {
    ttl: frame[ETHERNET + 8],
    sums: [folded(sumOf(frame, ETHERNET, l4)), folded(pseudo + sumOf(frame, l4, end))],
  };
}
const RIGHT = { ttl: 63, sums: [0xffff, 0xffff] };

/**
 * Opens a TCP connection from the client to the server, whose packets the datapath can then send directly.
 * Returns the source port of the SYN at the server. `untranslated`: the destination of the server's packets
 * for a client that the node does not translate.
 */
async function connected(untranslated?: readonly [string, number]): Promise<number> {
  const { text } = await sent('client', tcp([client, port], [server, PORT], TCP.syn));
  const outside = given(text);
  const end = untranslated ?? ([nodeWan, outside] as const);
  await sent('server', tcp([server, PORT], end, TCP.syn | TCP.ack));
  await sent('client', tcp([client, port], [server, PORT], TCP.ack));
  await sent('server', tcp([server, PORT], end, TCP.ack));
  const ack = [tcp([client, port], [server, PORT], TCP.ack), tcp([server, PORT], end, TCP.ack)] as const;
  // The stack forwards the packets of the first period. In the second, the datapath uses the same interface.
  for (let period = 0; period < 2; period++) {
    await pause(ALIAS_MS);
    node.datapath.look();
    await sent('client', ack[0]);
    await sent('server', ack[1]);
  }
  return outside;
}

skipUnless(direct, LACKS.conntrackLookup).describe('direct forwarding with NAT rules and no other chain', () => {
  beforeAll(async () => {
    node = await NatNode.create('natdirect');
  });
  afterAll(async () => {
    await node.remove();
  });
  beforeEach(async () => {
    port += 1;
    flushConntrack();
    for (const [name, value] of Object.entries(WINDOW_CHECKS)) writeFileSync(pathOf(name), `${value}`);
    node.close();
    await node.topology.node.must('nft', CHAINS);
    node.police(allowAll, { forwarding: 'auto', pickupMs: 0 });
    node.datapath.look();
    for (const wire of Object.values(node.wires)) wire.seen();
  });

  test('with NAT as the only third-party hook, forwarding is direct, and conntrack accepts packets outside of the TCP window', () => {
    expect(node.datapath.stats().forwarding).toEqual({ way: 'direct', reason: 'no third-party hook except NAT' });
    const checks = () => Object.keys(WINDOW_CHECKS).map((name) => Number(readFileSync(pathOf(name), 'utf8')));
    expect(checks()).toEqual([1, 1, DAYS, DAYS]);
    // The datapath does not overwrite a value that an administrator sets later.
    for (const [name, value] of [
      ['be_liberal', 0],
      ['timeout_max_retrans', 300],
    ] as const) {
      const ours = readFileSync(pathOf(name), 'utf8');
      writeFileSync(pathOf(name), `${value}`);
      node.datapath.look();
      expect(Number(readFileSync(pathOf(name), 'utf8'))).toBe(value);
      const reason = `net.netfilter.nf_conntrack_tcp_${name} is ${value}`;
      expect(node.datapath.stats().forwarding).toEqual({ way: 'stack', reason });
      writeFileSync(pathOf(name), ours);
    }
  });

  test('packets of an established TCP connection are translated and sent directly, in both directions', async () => {
    const outside = await connected();
    for (let round = 0; round < 3; round++) {
      const out = await sent('client', tcp([client, port], [server, PORT], TCP.ack | TCP.psh));
      expect(out).toMatchObject({ text: `tcp ${nodeWan}:${outside} > ${server}:${PORT} psh+ack`, byStack: false });
      const back = await sent('server', tcp([server, PORT], [nodeWan, outside], TCP.ack));
      expect(back).toMatchObject({ text: `tcp ${server}:${PORT} > ${client}:${port} ack`, byStack: false });
      for (const { frame } of [out, back]) expect(checked(frame)).toEqual(RIGHT);
    }
  });

  test('the FIN of a directly forwarded connection with NAT and later packets go through the network stack, so that conntrack sees the end', async () => {
    const outside = await connected();
    const ack = tcp([client, port], [server, PORT], TCP.ack);
    expect(await sent('client', ack)).toMatchObject({ byStack: false });
    // The FIN follows four bytes of data, so the server acknowledges the number 6.
    const fin = await sent('client', tcpAt(1, [client, port], [server, PORT], TCP.fin | TCP.ack));
    expect(fin).toMatchObject({ text: `tcp ${nodeWan}:${outside} > ${server}:${PORT} fin+ack`, byStack: true });
    const back = await sent('server', tcpAt(1, [server, PORT], [nodeWan, outside], TCP.ack, 6));
    expect(back).toMatchObject({ text: `tcp ${server}:${PORT} > ${client}:${port} ack`, byStack: true });
  });

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'datagrams of an established flow by DNAT are sent directly, with and without a checksum',
    async () => {
      const request = udp([server, PORT], [nodeWan, PUBLIC]);
      const reply = udp([client, PORT], [server, PORT]);
      const exchange = async () => [await sent('server', request), await sent('client', reply)] as const;
      await exchange();
      await pause(ASSURED_MS);
      for (let period = 0; period < 2; period++) {
        await exchange();
        await pause(ALIAS_MS);
        node.datapath.look();
      }
      const [there, back] = await exchange();
      expect(there).toMatchObject({ text: `udp ${server}:${PORT} > ${client}:${PORT}`, byStack: false });
      expect(back).toMatchObject({ text: `udp ${nodeWan}:${PUBLIC} > ${server}:${PORT}`, byStack: false });
      // The datagrams of `udp` have no checksum, and the node must not add one.
      for (const { frame } of [there, back]) expect([frame[40], frame[41]]).toEqual([0, 0]);
      const withSum = await sent('client', {
        ...reply,
        options: { content: datagram([PORT, PORT], [client, server]) },
      });
      expect(withSum).toMatchObject({ text: `udp ${nodeWan}:${PUBLIC} > ${server}:${PORT}`, byStack: false });
      expect(checked(withSum.frame)).toEqual(RIGHT);
    },
  );

  test('a policy change suspends a directly forwarded flow with NAT at the next packet from either side', async () => {
    const outside = await connected();
    expect(await sent('client', tcp([client, port], [server, PORT], TCP.ack))).toMatchObject({ byStack: false });
    node.enforce(only(client, [server, PORT + 1]));
    await node.isDropped('server', tcp([server, PORT], [nodeWan, outside], TCP.ack), 'policy_deny');
    await node.isDropped('client', tcp([client, port], [server, PORT], TCP.ack), 'policy_deny');
  });

  test('a third-party filter chain sees all packets of directly forwarded flows again, and connections with NAT continue', async () => {
    const outside = await connected();
    const push = (sequence: number) => tcpAt(sequence, [client, port], [server, PORT]);
    // Conntrack has not seen the data before: without its liberal mode, it would not translate the packet.
    expect(await sent('client', push(1_000_000_000))).toMatchObject({ byStack: false });
    await node.topology.node.must('nft', 'add chain ip mine after { type filter hook forward priority 0; }');
    node.datapath.look();
    expect(node.datapath.stats().forwarding).toEqual({ way: 'stack', reason: 'nftables chain ip mine after' });
    const out = await sent('client', push(1_000_000_004));
    expect(out).toMatchObject({ text: `tcp ${nodeWan}:${outside} > ${server}:${PORT} ack`, byStack: true });
  });

  test('a RST with NAT is translated after more unseen data than half of the sequence number space', async () => {
    const outside = await connected();
    const reset = (sequence: number) => tcpAt(sequence, [client, port], [server, PORT], TCP.rst);
    for (const sequence of [1, 0x7000_0000, 0xe000_0000])
      expect(await sent('client', tcpAt(sequence, [client, port], [server, PORT]))).toMatchObject({ byStack: false });
    await sent('server', tcpAt(1, [server, PORT], [nodeWan, outside], TCP.ack, 0xe000_0004));
    const { text } = await sent('client', reset(0xe000_0004));
    expect(text).toBe(`tcp ${nodeWan}:${outside} > ${server}:${PORT} rst`);
  });

  test('a flow that no NAT rule translates is sent directly in both directions', async () => {
    await node.topology.node.must('nft', 'insert rule ip mine post accept');
    expect(await connected([client, port])).toBe(port);
    for (let round = 0; round < 3; round++) {
      expect(await sent('client', tcp([client, port], [server, PORT], TCP.ack))).toMatchObject({ byStack: false });
      expect(await sent('server', tcp([server, PORT], [client, port], TCP.ack))).toMatchObject({ byStack: false });
    }
  });

  test('with one policed interface and NAT, the packets that come in by this interface are sent directly', async () => {
    node.police(allowAll, { forwarding: 'auto', pickupMs: 0, interfaces: ['lan0'] });
    const outside = await connected();
    const back = tcp([server, PORT], [nodeWan, outside], TCP.ack);
    for (let round = 0; round < 3; round++) {
      expect(await sent('client', tcp([client, port], [server, PORT], TCP.ack))).toMatchObject({
        text: `tcp ${nodeWan}:${outside} > ${server}:${PORT} ack`,
        byStack: false,
      });
      expect(await sent('server', back)).toMatchObject({
        text: `tcp ${server}:${PORT} > ${client}:${port} ack`,
        byStack: true,
      });
    }
  });

  test('conntrack keeps an idle, directly forwarded connection for days, also if it saw data without the acknowledgment', async () => {
    await connected();
    // The stack forwards data beyond the window that conntrack knows. conntrack then waits for its ACK.
    await sent('client', tcpAt(1, [client, port], [server, PORT]));
    await node.topology.node.must('nft', 'add chain ip mine after { type filter hook forward priority 0; }');
    expect(await sent('client', tcpAt(1_000_000_000, [client, port], [server, PORT]))).toMatchObject({ byStack: true });
    expect(conntrackSeconds()).toEqual([expect.closeTo(DAYS, -2)]);
  });

  test('a directly forwarded connection with NAT that both sides have closed stays in conntrack for at most 120 s', async () => {
    const outside = await connected();
    await sent('client', tcp([client, port], [server, PORT], TCP.fin | TCP.ack));
    await sent('server', tcp([server, PORT], [nodeWan, outside], TCP.fin | TCP.ack));
    await sent('client', tcp([client, port], [server, PORT], TCP.ack));
    await sent('server', tcp([server, PORT], [nodeWan, outside], TCP.ack));
    expect(Math.max(...conntrackSeconds())).toBeLessThanOrEqual(120);
  });

  test('conntrack keeps the entry of a flow with NAT whose packets are sent directly for longer than its time-out', async () => {
    node.close();
    writeFileSync('/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream', '3');
    try {
      node.police(allowAll, { forwarding: 'auto', pickupMs: 0 });
      node.datapath.look();
      const request = udp([client, port], [server, PORT]);
      const outside = given((await sent('client', request)).text);
      const reply = udp([server, PORT], [nodeWan, outside]);
      const texts = new Set<string | undefined>();
      const began = performance.now();
      let direct = 0;
      // Send for 9 s: conntrack deletes the entry three seconds after the last packet that it has seen.
      while (direct < 20 || performance.now() - began < 9_000) {
        for (const [from, packet] of [
          ['client', request],
          ['server', reply],
        ] as const) {
          const { text, byStack } = await sent(from, packet);
          texts.add(text);
          if (!byStack) direct += 1;
        }
        await pause(200);
      }
      expect([...texts]).toEqual([
        `udp ${nodeWan}:${outside} > ${server}:${PORT}`,
        `udp ${server}:${PORT} > ${client}:${port}`,
      ]);
    } finally {
      writeFileSync('/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream', '120');
    }
  });

  test('a masqueraded flow whose route has changed goes through the network stack, which masquerades it at the new interface', async () => {
    await connected();
    const { node: space } = node.topology;
    await space.must('ip', 'link', 'add', 'wan1', 'type', 'veth', 'peer', 'name', 'far1');
    try {
      await space.must('ip', 'address', 'add', '10.88.0.1/24', 'dev', 'wan1');
      for (const name of ['wan1', 'far1']) await space.must('ip', 'link', 'set', name, 'up');
      await space.must('nft', 'add rule ip mine post oifname "wan1" masquerade');
      const link = await space.must('ip', '-o', 'link', 'show', 'dev', 'far1');
      const wire = new Wire(space.name, Number(link.split(':')[0]));
      try {
        await space.must('ip', 'route', 'add', `${server}/32`, 'via', '10.88.0.2', 'dev', 'wan1');
        await space.must('ip', 'neigh', 'add', '10.88.0.2', 'lladdr', '02:00:00:00:00:09', 'dev', 'wan1');
        await expect
          .poll(
            () => {
              node.datapath.look();
              node.send('client', tcp([client, port], [server, PORT], TCP.ack));
              return wire.seen().map(textOf);
            },
            { interval: 100, timeout: 5_000 },
          )
          .toContainEqual(expect.stringMatching(/^tcp 10\.88\.0\.1:\d+ > /));
      } finally {
        wire.close();
      }
    } finally {
      await space.must('ip', 'link', 'del', 'wan1');
    }
  });

  test('a packet that is larger than the MTU of the next link goes through the network stack, although its flow with NAT is sent directly', async () => {
    await connected();
    await node.topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '600');
    try {
      const large: SentPacket = {
        ...tcp([client, port], [server, PORT], TCP.ack),
        options: { tcpFlags: TCP.ack, payloadBytes: 800 },
      };
      await pause(1_200); // Within this time, the datapath looks up the next hop again.
      node.datapath.look();
      node.send('client', large);
      await expect
        .poll(() => node.received('client'), { interval: 5 })
        .toEqual([expect.stringContaining(`icmp 3/4 ${ADDRESSES.nodeLan} > ${client}`)]);
    } finally {
      await node.topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '1500');
    }
  });
});

/** A download of this test has about 100 packets a second with checksum offload, and more without it. */
const PACKETS = 20;
/** Returns the number of packets that the node has received from the server. */
const arrived = (): number =>
  Number(/wan0:\s*\d+\s+(\d+)/.exec(readFileSync('/proc/thread-self/net/dev', 'utf8'))?.[1]);

/** Serves a byte stream until the standard input ends, and prints its SHA-256. */
const SERVE = `
  const { createHash, randomBytes } = require('node:crypto');
  require('node:net').createServer((socket) => {
    const hash = createHash('sha256');
    const timer = setInterval(() => {
      const bytes = randomBytes(50_000);
      hash.update(bytes);
      socket.write(bytes);
    }, 10);
    socket.on('data', () => {});
    process.stdin.resume().on('end', () => {
      clearInterval(timer);
      socket.end(() => console.log(hash.digest('hex')));
    });
  }).listen(${PORT}, () => console.log('listening'));
`;
const FETCH = `
  const hash = require('node:crypto').createHash('sha256');
  const socket = require('node:net').connect(${PORT}, '${server}');
  socket.on('data', (bytes) => hash.update(bytes)).on('end', () => console.log(hash.digest('hex')));
`;

skipUnless(direct, LACKS.conntrackLookup).describe('a download through masquerade', () => {
  let topology: Topology;
  let leave: () => void;
  let datapath: Datapath;
  beforeAll(async () => {
    topology = await createTopology('natbulk');
    await topology.server.must('ip', 'route', 'del', 'default');
    leave = enterNamespace(topology.node.name);
    await topology.node.must('nft', CHAINS);
    datapath = openDatapath(datapathOptions(topology.pinPath, { forwarding: 'auto' }));
    await datapath.open();
    await datapath.attach();
    await datapath.stage(allowAll, 1);
    await datapath.flip();
  });
  afterAll(async () => {
    await datapath.close();
    detach(topology.pinPath);
    leave();
    await topology.remove();
  });

  test.each(['on', 'off'])(
    'a download through masquerade arrives complete with checksum offload switched %s, and goes through the network stack only at first',
    async (offload) => {
      for (const host of [topology.client, topology.server]) await host.must('ethtool', '-K', 'eth0', 'tx', offload);
      const serving = topology.server.start(process.execPath, ['-e', SERVE]);
      try {
        await firstLine(serving);
        const served = firstLine(serving);
        const fetched = topology.client.run(process.execPath, '-e', FETCH);
        let from = { stack: forwarded(), all: arrived() };
        await eventually(() => {
          const to = { stack: forwarded(), all: arrived() };
          expect(to.all).toBeGreaterThan(from.all + PACKETS);
          const byStack = to.stack - from.stack;
          from = to;
          expect(byStack).toBe(0);
        });
        // Within this time, the datapath looks up the next hop of the connection again.
        await pause(2 * ALIAS_MS);
        await eventually(() => expect(arrived()).toBeGreaterThan(from.all + 5 * PACKETS));
        expect(forwarded()).toBe(from.stack);
        serving.stdin?.end();
        expect((await fetched).stdout.trim()).toBe(await served);
      } finally {
        serving.kill('SIGKILL');
      }
    },
  );
});

/** Returns a UDP header with a right checksum, and four bytes of data. */
function datagram([from, to]: readonly [number, number], ends: readonly [string, string]): Uint8Array {
  const bytes = new Uint8Array(12);
  const view = new DataView(bytes.buffer);
  for (const [index, word] of [from, to, 12, 0, 0x1234, 0x5678].entries()) view.setUint16(index * 2, word);
  const addresses = ends.flatMap((end) => end.split('.').map(Number));
  const pseudo = sumOf(Uint8Array.from(addresses), 0, 8) + IPPROTO.udp + 12;
  view.setUint16(6, ~folded(pseudo + sumOf(bytes, 0, 12)) & 0xffff);
  return bytes;
}

/** Returns a TCP packet with four bytes of data at a sequence number. */
function tcpAt(
  sequence: number,
  from: readonly [string, number],
  to: readonly [string, number],
  flags: number = TCP.ack,
  acknowledgment = 0,
): SentPacket {
  const bytes = new Uint8Array(24);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, from[1]);
  view.setUint16(2, to[1]);
  view.setUint32(4, sequence);
  view.setUint32(8, acknowledgment);
  view.setUint16(12, 0x5000 | flags);
  view.setUint16(14, 1_000);
  return { ...tcp(from, to, flags), options: { content: bytes } };
}

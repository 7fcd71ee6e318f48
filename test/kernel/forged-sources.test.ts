import { execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES, type Topology } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { libc } from '#libc/libc.js';
import { compile } from '#policy/compile/compile.js';
import { bindSocket, openSocket } from '#sockets/socket-options.js';
import { type FrameOptions, MAX_FRAME, MORE_FRAGMENTS, TCP, withChecksum, writeFrame } from '#test/dataplane/frame.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { ipv6Frame, ipv6Packet } from './ipv6-frames.js';
import { allowAll, defaultOnly } from './policies.js';
import { openProxySockets } from './proxy-sockets.js';
import { hooksGone } from './tcx.js';
import { topologyOfFile } from './topology-of-file.js';
import { Wire } from './wire.js';

const [OWN_PORT, OTHER_PORT] = [5_353, 5_354];
const UNNAMED = '10.79.1.2';
/** The MAC address of the node's interfaces, which `writeFrame` uses as the destination. */
const STATION = '02:00:00:00:00:01';

const topology = topologyOfFile('forged');
let wires: Record<'lan0' | 'wan0' | 'ext0', Wire>;
let sockets: readonly number[] = [];
const sh = (command: string): string => execFileSync('sh', ['-ec', command], { encoding: 'utf8' });

beforeAll(async () => {
  const { node, client, server } = topology;
  await node.must('ip', 'link', 'add', 'ext0', 'type', 'veth', 'peer', 'name', 'pext0', 'netns', server.name);
  await server.must('ip', 'link', 'set', 'pext0', 'up');
  sh(`ip addr add 10.79.1.1/24 dev ext0; ip link set ext0 up; ip route add 10.99.0.0/16 via ${UNNAMED} dev ext0
    for name in all default lan0 wan0 ext0; do echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter; done
    for name in lan0 wan0 ext0; do ip link set $name address ${STATION}; done
    nft -f - <<RULES
table inet seen {
  chain in {
    type filter hook input priority 10;
    udp dport ${OWN_PORT} counter
    tcp dport ${OWN_PORT} counter
    udp dport ${OTHER_PORT} counter
  }
}
RULES`);
  const at = async (space: Topology['client'], name: string): Promise<Wire> => {
    const index = (await space.must('ip', '-o', 'link', 'show', 'dev', name)).split(':')[0];
    return new Wire(space.name, Number(index));
  };
  wires = { lan0: await at(client, 'eth0'), wan0: await at(server, 'eth0'), ext0: await at(server, 'pext0') };
  sockets = openProxySockets(OWN_PORT, OTHER_PORT);
});
afterAll(() => {
  for (const wire of Object.values(wires)) wire.close();
  for (const fd of sockets) libc.close(fd);
});

let datapath: LocalDatapath | undefined;
function police(more: Partial<DatapathOptions> = {}): LocalDatapath {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, { interfaces: ['lan0', 'wan0'], ...more }));
  datapath.open();
  datapath.attach();
  datapath.stage(allowAll, 1);
  datapath.flip();
  return datapath;
}
afterEach(() => {
  datapath?.close();
  datapath = undefined;
  detach(topology.pinPath);
  sh('for name in lan0 wan0 ext0; do echo 1 > /proc/sys/net/ipv4/conf/$name/forwarding; done');
});

/** Blocks this thread for `ms` milliseconds. */
const sleep = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** Returns the packet counters of the rules in the nftables chain `seen`, which is on the input hook. */
const counts = (): number[] =>
  [...sh('nft list chain inet seen in').matchAll(/counter packets (\d+)/g)].map(([, count]) => Number(count));

type Kind = readonly [name: string, protocol: number, port: number, parts: readonly FrameOptions[]];
const LOOKUP: Kind = ['UDP', 17, OWN_PORT, [{}]];
const KINDS: readonly Kind[] = [
  LOOKUP,
  ['UDP with IPv4 options', 17, OWN_PORT, [{ optionBytes: 8 }]],
  [
    'UDP in fragments',
    17,
    OWN_PORT,
    // The first fragment: a UDP header that gives a length of 24 bytes, and eight bytes of data. The second
    // fragment has the other eight bytes.
    [
      {
        id: 9,
        fragment: MORE_FRAGMENTS,
        content: Uint8Array.of(0x11, 0x11, 0x14, 0xe9, 0, 24, 0, 0, ...new Array(8).fill(0)),
      },
      { id: 9, fragment: 2, content: new Uint8Array(8) },
    ],
  ],
  ['a SYN', 6, OWN_PORT, [{ tcpFlags: TCP.syn }]],
  ['an ACK', 6, OWN_PORT, [{ tcpFlags: TCP.ack }]],
];

type By = keyof typeof wires;
const ofNode = (by: By): string => (by === 'ext0' ? '10.79.1.1' : ADDRESSES.nodeLan);

/**
 * Sends a packet with this source address to an interface of the node. Returns whether the packet reaches the
 * input hook.
 */
function arrives(by: By, source: string, kind: Kind = LOOKUP, destination = ofNode(by)): boolean {
  const before = counts();
  send(by, source, kind, destination);
  // Wait up to 100 ms: a veth pair usually delivers before `send` returns, but later under load.
  for (const waitMs of [0, 10, 30, 60]) {
    sleep(waitMs);
    if (counts().join() !== before.join()) return true;
  }
  return false;
}

function send(by: By, source: string, [, protocol, port, parts]: Kind, destination: string): void {
  const packet = {
    protocol,
    source: parseIpv4Address(source) ?? 0,
    destination: parseIpv4Address(destination) ?? 0,
    sourcePort: 0x1111,
    destinationPort: port,
  } as Packet<number>;
  for (const part of parts) {
    const bytes = new Uint8Array(MAX_FRAME);
    wires[by].send(withChecksum(bytes.subarray(0, writeFrame(bytes, packet, part))));
  }
}

const ELSEWHERE = [ADDRESSES.client, ADDRESSES.clientOther, ADDRESSES.server, '10.77.1.77'];
const NOWHERE = ['192.0.2.1', '8.8.8.8'];
const OWN = [ADDRESSES.nodeLan, '10.79.1.1'];

describe('packets with a forged source to sockets of the DNS proxy and service plane', () => {
  test('a packet with a forged source from an unpoliced interface does not reach a socket of the DNS proxy or service plane', () => {
    police();
    for (const kind of KINDS) {
      const forged = [ADDRESSES.client, ADDRESSES.server, '192.0.2.1'];
      expect([kind[0], forged.filter((source) => arrives('ext0', source, kind))]).toEqual([kind[0], []]);
      expect([kind[0], arrives('ext0', UNNAMED, kind)]).toEqual([kind[0], true]);
    }
  });

  test('a packet with a forged source from a policed interface that does not forward reaches no socket of the DNS proxy or service plane', () => {
    police();
    sh('echo 0 > /proc/sys/net/ipv4/conf/wan0/forwarding');
    for (const kind of KINDS) {
      const forged = [ADDRESSES.client, UNNAMED, '192.0.2.1'];
      expect([kind[0], forged.filter((source) => arrives('wan0', source, kind))]).toEqual([kind[0], []]);
      expect([kind[0], arrives('wan0', ADDRESSES.server, kind)]).toEqual([kind[0], true]);
    }
  });

  test.each<[string, Partial<DatapathOptions>]>([
    ['clsact', { forceClsact: true }],
    ['direct forwarding', { forwarding: 'direct' }],
    ['police_local', { policeLocal: true }],
    ['dns.transparent', { divertDns: true }],
    ['a service plane', { servicePlane: { address: 0x7f00_0001, port: 15_001 } }],
  ])(
    'a packet with a forged source does not reach a socket of the DNS proxy or service plane with the setting %s',
    (_, more) => {
      police(more);
      expect([ADDRESSES.client, '10.77.1.77'].filter((source) => arrives('ext0', source))).toEqual([]);
      expect(arrives('ext0', UNNAMED)).toBe(true);
      expect([UNNAMED, ADDRESSES.server].filter((source) => arrives('lan0', source))).toEqual([]);
    },
  );

  test('no packet with a forged source reaches a socket of the DNS proxy or service plane without BPF hooks, after another process opened the datapath, or after `attach` restored the nftables rules of Weir', async () => {
    police().close();
    sh(`rm ${topology.pinPath}/links-*/*`);
    await hooksGone(topology.node.name);
    expect(arrives('ext0', ADDRESSES.client)).toBe(false);
    police();
    expect(arrives('ext0', ADDRESSES.client)).toBe(false);
    sh('nft flush table inet weir');
    expect(arrives('ext0', ADDRESSES.client)).toBe(true);
    expect(datapath?.look()).toContainEqual({ type: 'guard_lost' });
    datapath?.attach();
    expect(arrives('ext0', ADDRESSES.client)).toBe(false);
  });

  test('with reverse_path: loose, no socket of the DNS proxy or service plane receives packets whose source has no route or belongs to the node', () => {
    police({ reversePath: 'loose' });
    sh('echo 1 > /proc/sys/net/ipv4/conf/ext0/accept_local');
    expect([...NOWHERE, ...OWN].filter((source) => arrives('ext0', source))).toEqual([]);
    expect(ELSEWHERE.filter((source) => !arrives('ext0', source))).toEqual([]);
    sh('echo 0 > /proc/sys/net/ipv4/conf/ext0/accept_local');
  });

  test('with reverse_path: off, a packet with a forged source reaches the sockets of the DNS proxy and service plane', () => {
    police({ reversePath: 'off' });
    expect([...ELSEWHERE, ...NOWHERE].filter((source) => !arrives('ext0', source))).toEqual([]);
  });

  test('other sockets receive packets with a forged source, and sockets of the DNS proxy and service plane receive packets of the node itself', () => {
    police();
    expect(arrives('ext0', ADDRESSES.client, ['UDP', 17, OTHER_PORT, [{}]])).toBe(true);
    const [before = 0] = counts();
    sh(`bash -c 'echo x > /dev/udp/10.79.1.1/${OWN_PORT}'`);
    expect(counts()[0]).toBe(before + 1);
  });

  test('the nftables chain that protects the sockets of the DNS proxy and service plane from forged sources does not prevent direct forwarding', () => {
    police({ forwarding: 'auto' }).look();
    expect(datapath?.stats().forwarding).toEqual({ way: 'direct', reason: 'no third-party hook' });
  });
});

describe('a listener on 127.0.0.1 of a node with route_localnet=1', () => {
  const PORT = 5_355;
  let listener: number;
  beforeAll(() => {
    sh('for name in all lan0 wan0 ext0; do echo 1 > /proc/sys/net/ipv4/conf/$name/route_localnet; done');
    listener = openSocket('udp', { mark: 0 });
    bindSocket(listener, { address: 0x7f00_0001, port: PORT });
  });
  afterAll(() => {
    libc.close(listener);
  });
  const MSG_DONTWAIT = 0x40;
  /**
   * Sends a datagram to the listener. Returns the number of datagrams that the listener receives within 50
   * ms.
   */
  function received(source: string, by: By = 'lan0'): number {
    send(by, source, ['UDP', 17, PORT, [{}]], '127.0.0.1');
    const bytes = new Uint8Array(64);
    let count = 0;
    for (const waitMs of [0, 10, 40]) {
      sleep(waitMs);
      while (libc.recv(listener, bytes, bytes.length, MSG_DONTWAIT) >= 0) count++;
    }
    return count;
  }

  test('a listener on 127.0.0.1 receives packets from the network while no interface is policed and route_localnet is 1', () => {
    expect(received(ADDRESSES.client)).toBe(1);
  });

  test.each<[string, Partial<DatapathOptions>]>([
    ['strict', {}],
    ['off', { reversePath: 'off' }],
    ['police_local', { policeLocal: true }],
    ['clsact', { forceClsact: true }],
  ])(
    'a listener on 127.0.0.1 receives no packets from a policed interface, although route_localnet is 1 (setting: %s)',
    (_, more) => {
      police(more);
      expect([ADDRESSES.client, '127.0.0.1', '127.0.0.2'].map((source) => received(source))).toEqual([0, 0, 0]);
      expect(received(ADDRESSES.server, 'wan0')).toBe(0);
      expect(datapath?.stats().drops.loopback?.packets).toBe(4n);
    },
  );

  test('a listener on 127.0.0.1 still receives packets from an unpoliced interface if route_localnet is 1', () => {
    police();
    expect(received(UNNAMED, 'ext0')).toBe(1);
  });
});

describe('IPv6 packets with a forged source to the node', () => {
  const kernelForwards = (on: boolean): string =>
    sh(`for name in all lan0 wan0; do echo ${on ? 1 : 0} > /proc/sys/net/ipv6/conf/$name/forwarding; done`);
  beforeAll(async () => {
    await addIpv6(topology);
    sh('nft add rule inet seen in meta nfproto ipv6 udp dport 4000 counter; ip addr add fd79:1::1/64 dev ext0 nodad');
  });
  afterAll(() => kernelForwards(true));

  /** Sends a datagram to the node. Returns whether it reaches a later chain of the input hook. */
  function arrivesByIpv6(by: By, source: string, port = OWN_PORT): boolean {
    const before = counts();
    const destination = by === 'ext0' ? 'fd79:1::1' : IPV6.nodeLan;
    const frame = ipv6Frame(ipv6Packet(source, destination, { sourcePort: 1_000, destinationPort: port }));
    frame.set(STATION.split(':').map((byte) => Number.parseInt(byte, 16)));
    wires[by].send(frame);
    sleep(60);
    return counts().join() !== before.join();
  }

  /** An address behind another interface, an address of the node, and one without a route. */
  const forged = [IPV6.server, IPV6.nodeLan, '2001:db8::1'];

  test.each([
    ['strict', true, []],
    ['strict', false, []],
    ['loose', false, [IPV6.server]],
    ['off', false, forged],
  ] as const)(
    'with police_local and reverse_path: %s, the node drops IPv6 packets whose source that check refuses (interfaces forward: %s)',
    (reversePath, forwards, accepted) => {
      kernelForwards(forwards);
      police({ ipv6: 'enforce', policeLocal: true, reversePath });
      datapath?.stage(compile(defaultOnly('allow'), { ipv6: true }), 2);
      datapath?.flip();
      const reaches = (source: string): boolean => arrivesByIpv6('lan0', source, 4_000);
      expect([reaches(IPV6.client), reaches('fe80::2')]).toEqual([true, true]);
      expect(forged.filter(reaches)).toEqual(accepted);
      expect(datapath?.look()).toEqual([]);
    },
  );

  const ELSEWHERE_IPV6 = [IPV6.client, IPV6.server];
  const NOWHERE_IPV6 = [IPV6.nodeLan, 'fd79:1::1', '2001:db8::1'];
  test.each([
    ['strict', []],
    ['loose', ELSEWHERE_IPV6],
    ['off', [...ELSEWHERE_IPV6, ...NOWHERE_IPV6]],
  ] as const)(
    'with reverse_path: %s, a socket of the DNS proxy receives from an unpoliced interface only IPv6 packets whose source that check accepts',
    (reversePath, accepted) => {
      police({ ipv6: 'enforce', reversePath });
      expect(['fd79:1::2', 'fe80::2'].filter((source) => !arrivesByIpv6('ext0', source))).toEqual([]);
      const sources = [...ELSEWHERE_IPV6, ...NOWHERE_IPV6];
      expect(sources.filter((source) => arrivesByIpv6('ext0', source))).toEqual(accepted);
      expect(sources.filter((source) => !arrivesByIpv6('ext0', source, OTHER_PORT))).toEqual([]);
      expect(datapath?.look()).toEqual([]);
    },
  );

  test('a forged IPv6 packet from a policed interface does not reach a socket of the DNS proxy, whether the interface forwards or not', () => {
    for (const forwards of [true, false]) {
      kernelForwards(forwards);
      police({ ipv6: 'enforce' });
      datapath?.stage(compile(defaultOnly('allow'), { ipv6: true }), 2);
      datapath?.flip();
      expect([forwards, forged.filter((source) => arrivesByIpv6('lan0', source))]).toEqual([forwards, []]);
      expect([forwards, arrivesByIpv6('lan0', IPV6.client)]).toEqual([forwards, true]);
      datapath?.close();
      detach(topology.pinPath);
    }
  });
});

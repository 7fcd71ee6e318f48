import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { libc } from '#libc/libc.js';
import { back, echo, icmp, tcp, udp } from '#test/dataplane/conversation.js';
import { type FrameOptions, icmpContent, MORE_FRAGMENTS, quoteOf, TCP } from '#test/dataplane/frame.js';
import {
  DROPPED,
  type Entry,
  type Loaded,
  loadForTest,
  PASSED,
  SKB,
  type TestOptions,
} from '#test/dataplane/loaded.js';
import { allowAll, denyAll } from './policies.js';
import { openProxySockets } from './proxy-sockets.js';
import { topologyOfFile } from './topology-of-file.js';

const at = (text: string): number => parseIpv4Address(text) ?? Number.NaN;
const CLIENT = at(ADDRESSES.client);
const SERVER = at(ADDRESSES.server);
const OUTSIDE = at('10.77.9.9');

const topology = topologyOfFile('routes');
let kernel: Loaded;
const interfaces: Record<string, number> = {};
beforeAll(async () => {
  // Add an interface to the node that the datapath does not police, with a network behind the interface.
  await topology.node.must('ip', 'link', 'add', 'ext0', 'type', 'veth', 'peer', 'name', 'ext1');
  await topology.node.must('ip', 'addr', 'add', '10.77.9.1/24', 'dev', 'ext0');
  for (const name of ['ext0', 'ext1']) await topology.node.must('ip', 'link', 'set', name, 'up');
  for (const { name, ifindex } of listInterfaces()) interfaces[name] = ifindex;
});
afterAll(() => {
  for (const kernel of loaded.values()) kernel.close();
});

/** The BPF programs that `load` has loaded, by their settings. `load` reuses them and resets their state. */
const loaded = new Map<string, Loaded>();
function load(more: TestOptions = {}): void {
  const key = JSON.stringify(more);
  kernel = loaded.get(key) ?? loadForTest({ classifyAll: false, reversePath: 'strict', ...more });
  loaded.set(key, kernel);
  kernel.forget();
  kernel.activate(allowAll);
}

/**
 * Classifies a packet that comes in by the interface `by`. If `entry` is an egress entry, the packet leaves
 * by that interface. Returns the TC action.
 */
function see(by: string, packet: Packet<number>, options: FrameOptions = {}, entry: Entry = 'in'): number {
  kernel.context.setUint32(SKB.ifindex, interfaces[by] ?? 0, true);
  return kernel.runPacket(packet, options, 0, entry).returned;
}
const from = (source: string, destination = SERVER): Packet<number> => ({ ...udp, source: at(source), destination });
const asked: Packet<number> = { ...udp, source: CLIENT, destination: SERVER };

const NEVER = ['0.0.0.0', '0.1.2.3', '224.0.0.1', '239.255.255.255', '255.255.255.255'];
const LOOPBACK = ['127.0.0.0', '127.0.0.1', '127.83.0.53', '127.255.255.255'];
const OWN = [ADDRESSES.nodeLan, ADDRESSES.nodeWan, '10.77.1.255', '10.77.9.1'];
const UNROUTED = ['192.0.2.1', '8.8.8.8', '240.0.0.1'];
const ELSEWHERE = [ADDRESSES.server, '10.77.9.9'];
const HERE = [ADDRESSES.client, ADDRESSES.clientOther, '10.77.1.77'];

describe('packets with a forged source', () => {
  test.each([
    ['strict', [...NEVER, ...OWN, ...UNROUTED, ...ELSEWHERE], HERE],
    ['loose', [...NEVER, ...OWN, ...UNROUTED], [...ELSEWHERE, ...HERE]],
    ['off', NEVER, [...OWN, ...UNROUTED, ...ELSEWHERE, ...HERE]],
  ] as const)(
    'a packet whose source address routes elsewhere, or cannot belong to a host, is dropped as forged with reverse_path: %s',
    (reversePath, dropped, passed) => {
      load({ reversePath });
      expect(dropped.filter((source) => see('lan0', from(source)) !== DROPPED)).toEqual([]);
      expect(kernel.counted()).toEqual({ drop_spoofed_source: dropped.length });
      expect(passed.filter((source) => see('lan0', from(source)) !== PASSED)).toEqual([]);
    },
  );

  test('a packet with a forged source is dropped even if it belongs to a flow that the owner of the address opened elsewhere', () => {
    load();
    see('lan0', asked);
    expect(see('wan0', asked)).toBe(DROPPED);
    expect(see('lan0', back(asked))).toBe(DROPPED);
    expect(see('wan0', back(asked))).toBe(PASSED);
    expect(kernel.counted()).toMatchObject({ drop_spoofed_source: 2, allow: 2 });
  });

  test('a packet with a forged source is dropped before the policy denies it, so that the drop does not count as a denial', () => {
    load();
    kernel.activate(denyAll);
    see('lan0', from('8.8.8.8'));
    expect(kernel.counted()).toEqual({ drop_spoofed_source: 1 });
  });
});

const MODES = [
  ['reverse_path: strict', {}],
  ['reverse_path: loose', { reversePath: 'loose' }],
  ['reverse_path: off', { reversePath: 'off' }],
  ['police_local', { policeLocal: true }],
  ['police_local and reverse_path: off', { policeLocal: true, reversePath: 'off' }],
  ['direct forwarding', { direct: true }],
  ['dns.transparent', { divertDns: true }],
  ['a service plane', { servicePlane: { address: at('127.0.0.1'), port: 15_001 } }],
  ['a takeover from another datapath', { handsOver: true }],
] as const;
const KINDS = [
  ['UDP', udp, {}],
  ['a lookup', { ...udp, destinationPort: 53 }, {}],
  ['a SYN', tcp, { tcpFlags: TCP.syn }],
  ['an ACK', tcp, { tcpFlags: TCP.ack }],
  ['a SYN ACK', tcp, { tcpFlags: TCP.syn | TCP.ack }],
  ['an RST', tcp, { tcpFlags: TCP.rst }],
  ['an echo request', echo, {}],
  ['an ICMP redirect', icmp(CLIENT, SERVER, 5), {}],
  ['an ICMP error', icmp(CLIENT, SERVER, 3), {}],
  ['another protocol', { ...udp, protocol: 47 }, {}],
  ['a first fragment', udp, { fragment: MORE_FRAGMENTS, content: new Uint8Array(64) }],
  ['a later fragment', udp, { fragment: 8, content: new Uint8Array(64) }],
] as const;

describe('packets with a loopback address', () => {
  test.each(MODES)(
    'a packet with an address of 127.0.0.0/8 is dropped as `loopback` with the setting %s',
    (_, settings) => {
      load(settings);
      for (const policy of [allowAll, denyAll]) {
        kernel.activate(policy);
        kernel.slots.setPickupUntil(2n ** 62n);
        for (const [kind, packet, options] of KINDS) {
          for (const address of LOOPBACK) {
            const ends = [
              { source: at(address), destination: SERVER },
              { source: at(address), destination: at(ADDRESSES.nodeLan) },
              { source: CLIENT, destination: at(address) },
              { source: at(address), destination: at('127.0.0.1') },
            ];
            const passed = ends.filter((both) => see('lan0', { ...packet, ...both }, options) !== DROPPED);
            expect([kind, address, passed]).toEqual([kind, address, []]);
          }
        }
      }
      expect(kernel.counted()).toEqual({ drop_loopback: 2 * KINDS.length * LOOPBACK.length * 4 });
    },
  );

  test('a packet with an address of 127.0.0.0/8 is dropped as `loopback` even if no policy was ever activated', () => {
    const fresh = loadForTest({ classifyAll: false });
    try {
      fresh.context.setUint32(SKB.ifindex, interfaces.lan0 ?? 0, true);
      expect(fresh.runPacket({ ...asked, destination: at('127.0.0.1') }).returned).toBe(DROPPED);
      expect(fresh.counted()).toEqual({ drop_loopback: 1 });
    } finally {
      fresh.close();
    }
  });

  test('a packet with an address of 127.0.0.0/8 is dropped even if it replies to a packet from a loopback address of the node', () => {
    load({ policeLocal: true });
    const sent = { ...udp, source: at('127.0.0.1'), destination: CLIENT };
    see('lan0', sent, {}, 'out_of_node');
    see('lan0', sent, {}, 'out_exempt');
    see('lan0', sent, {}, 'out_foreign');
    expect(see('lan0', back(sent))).toBe(DROPPED);
    expect(kernel.flowsIn('half_open')).toEqual([]);
  });
});

describe('sockets of the DNS proxy and service plane', () => {
  const [OWN_PORT, OTHER_PORT] = [5_353, 5_354];
  let sockets: readonly number[] = [];
  beforeAll(() => {
    sockets = openProxySockets(OWN_PORT, OTHER_PORT);
  });
  afterAll(() => {
    for (const fd of sockets) libc.close(fd);
  });

  const forged = [...ELSEWHERE, ...UNROUTED, ...OWN, '0.0.0.0', '224.0.0.1', '255.255.255.255'];
  const lookups = [
    ['UDP', udp, {}],
    ['a SYN', tcp, { tcpFlags: TCP.syn }],
    ['an ACK', tcp, { tcpFlags: TCP.ack }],
    ['UDP with IPv4 options', udp, { optionBytes: 8 }],
  ] as const;
  const sent = (source: string, packet: Packet<number>, destinationPort: number, options: FrameOptions): number =>
    see('lan0', { ...packet, source: at(source), destination: at(ADDRESSES.nodeLan), destinationPort }, options);

  test.each(lookups)(
    'a socket of the DNS proxy or service plane receives no packet with a forged source sent as %s, with reverse_path: strict',
    (_, packet, options) => {
      load();
      expect(forged.filter((source) => sent(source, packet, OWN_PORT, options) !== DROPPED)).toEqual([]);
      expect(kernel.counted()).toEqual({ drop_spoofed_source: forged.length });
      expect(HERE.filter((source) => sent(source, packet, OWN_PORT, options) !== PASSED)).toEqual([]);
    },
  );

  test.each(lookups)(
    'a socket of the DNS proxy or service plane receives no packet with a forged source sent as %s, with reverse_path: loose',
    (_, packet, options) => {
      load({ reversePath: 'loose' });
      const dropped = forged.filter((source) => !ELSEWHERE.includes(source));
      expect(dropped.filter((source) => sent(source, packet, OWN_PORT, options) !== DROPPED)).toEqual([]);
      expect(ELSEWHERE.filter((source) => sent(source, packet, OWN_PORT, options) !== PASSED)).toEqual([]);
    },
  );

  test.each(lookups)(
    'with reverse_path: off, a socket of the DNS proxy or service plane receives no packet sent as %s with a source that cannot belong to a host',
    (_, packet, options) => {
      load({ reversePath: 'off' });
      expect(NEVER.filter((source) => sent(source, packet, OWN_PORT, options) !== DROPPED)).toEqual([]);
      expect(HERE.filter((source) => sent(source, packet, OWN_PORT, options) !== PASSED)).toEqual([]);
    },
  );

  test('a socket of the DNS proxy or service plane receives no packet with a forged source sent in fragments', () => {
    load();
    const parts = [
      { fragment: MORE_FRAGMENTS, content: new Uint8Array(64) },
      { fragment: 8, content: new Uint8Array(64) },
    ];
    const passed = parts.flatMap((part) => forged.filter((source) => sent(source, udp, OWN_PORT, part) !== DROPPED));
    expect(passed).toEqual([]);
  });

  test('sockets of the node other than those of the DNS proxy and service plane receive packets with a forged source', () => {
    load();
    expect(ELSEWHERE.filter((source) => sent(source, udp, OTHER_PORT, {}) !== PASSED)).toEqual([]);
    expect(sent(ADDRESSES.server, tcp, OTHER_PORT, { tcpFlags: TCP.syn })).toBe(PASSED);
  });
});

describe('fragments with a forged source', () => {
  const part = (fragment: number, bytes: number, more: FrameOptions = {}): FrameOptions => ({
    ...{ id: 7, fragment, content: new Uint8Array(bytes) },
    ...more,
  });
  const forgeries: readonly (readonly [string, FrameOptions])[] = [
    ['that covers the middle', part(MORE_FRAGMENTS | 8, 64)],
    ['that covers a part of the middle', part(MORE_FRAGMENTS | 9, 8)],
    ['that overlaps the first', part(MORE_FRAGMENTS | 4, 64)],
    ['that is the first again', part(MORE_FRAGMENTS, 64)],
    ['that is a longer first', part(MORE_FRAGMENTS, 128)],
    ['that is too short a first', part(MORE_FRAGMENTS, 4)],
    ['that is a first of 8 bytes', part(MORE_FRAGMENTS, 8)],
    ['that ends the datagram early', part(8, 8)],
    ['that ends the datagram late', part(1_000, 8)],
    ['that is the last', part(16, 30)],
    ['behind the end', part(MORE_FRAGMENTS | 4_000, 64)],
    ['that ends the datagram twice', part(16, 8)],
    ['with IPv4 options', part(MORE_FRAGMENTS | 8, 64, { optionBytes: 8 })],
  ];
  const cases = (['strict', 'loose', 'off'] as const).flatMap((reversePath) =>
    ['wan0', 'ext0'].map((by) => [reversePath, by] as const),
  );

  test.each(cases)(
    "forged fragments do not change the reassembly of another sender's datagram with reverse_path: %s, if they come in by the interface %s",
    (reversePath, by) => {
      load({ reversePath });
      for (const [kind, forgery] of forgeries) {
        kernel.forgetFlows();
        const first = see('lan0', asked, part(MORE_FRAGMENTS, 64));
        const repeated = [see(by, asked, forgery), see(by, asked, forgery)];
        if (reversePath === 'strict') expect([kind, ...repeated]).toEqual([kind, DROPPED, DROPPED]);
        const rest = [see('lan0', asked, part(MORE_FRAGMENTS | 8, 64)), see('lan0', asked, part(16, 30))];
        expect([kind, first, ...rest]).toEqual([kind, PASSED, PASSED, PASSED]);
      }
    },
  );

  test("a forged fragment from the sender's interface with the same destination and id does not change the reassembly of the datagram", () => {
    load();
    see('lan0', asked, part(MORE_FRAGMENTS, 64));
    expect(see('lan0', from('8.8.8.8'), part(MORE_FRAGMENTS | 8, 64))).toBe(DROPPED);
    expect(see('lan0', asked, part(8, 30))).toBe(PASSED);
  });
});

test('packets to the node itself pass although the policy denies all packets, and the datapath does not mark them', () => {
  load();
  kernel.activate(denyAll);
  const addressed = [ADDRESSES.nodeLan, ADDRESSES.nodeWan, '10.77.1.255', '224.0.0.5', '255.255.255.255', '192.0.2.7'];
  kernel.context.setUint32(SKB.ifindex, interfaces.lan0 ?? 0, true);
  for (const destination of addressed) {
    expect(kernel.runPacket({ ...asked, destination: at(destination) })).toEqual({
      returned: PASSED,
      word: 0,
      mark: 0,
    });
  }
  expect(kernel.counted()).toEqual({ to_node: addressed.length });
});

test('fragments to the node itself do not evict the reassembly state of forwarded fragments', () => {
  load();
  const first = { fragment: MORE_FRAGMENTS, content: new Uint8Array(64) };
  see('lan0', asked, { ...first, id: 1 });
  for (let id = 2; id < 8_200; id++) see('lan0', { ...asked, destination: at(ADDRESSES.nodeLan) }, { ...first, id });
  expect(see('lan0', asked, { fragment: 8, id: 1, content: new Uint8Array(16) })).toBe(PASSED);
  expect(see('lan0', { ...asked, destination: at(ADDRESSES.nodeLan) }, { fragment: 8, id: 9 })).toBe(PASSED);
});

describe('with police_local on a host that does not forward', () => {
  beforeEach(async () => {
    load({ policeLocal: true });
    await topology.node.must('sh', '-c', 'echo 0 > /proc/sys/net/ipv4/ip_forward');
  });
  afterEach(() => topology.node.must('sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward'));

  test('with police_local on a host that does not forward, the policy classifies packets to the node, and forged sources are dropped', () => {
    expect(see('lan0', { ...asked, destination: at(ADDRESSES.nodeLan) })).toBe(PASSED);
    expect(see('lan0', from('0.1.2.3', at(ADDRESSES.nodeLan)))).toBe(DROPPED);
    kernel.activate(denyAll);
    expect(see('lan0', { ...from('10.77.1.9'), destination: at(ADDRESSES.nodeLan) })).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ allow: 1, half_opened: 1, drop_spoofed_source: 1, drop_policy_deny: 1 });
  });
});

describe('an ICMP error about a flow', () => {
  const about = (packet: Packet<number>, source = SERVER): Packet<number> => icmp(source, packet.source, 3, 4);
  const quoting = (packet: Packet<number>): FrameOptions => ({ content: icmpContent(3, 4, quoteOf(packet)) });
  const answered = (): void => {
    see('lan0', asked);
    see('wan0', back(asked));
    kernel.activate(denyAll);
    kernel.activate(allowAll);
  };
  beforeEach(() => load());

  test.each([
    ['half open', () => see('lan0', asked)],
    ['answered', answered],
  ])(
    'an ICMP error counts as part of a flow only if it comes in by the interface that the flow leaves by (%s flow)',
    (_, open) => {
      open();
      expect(see('wan0', about(asked), quoting(asked))).toBe(PASSED);
      expect(kernel.counted().icmp_related).toBe(1);
      expect(see('lan0', about(asked, at('10.77.1.9')), quoting(asked))).toBe(PASSED);
      expect(kernel.counted().icmp_related).toBe(1);
    },
  );

  test("an ICMP error about a reply on a flow from an unpoliced interface is dropped if it comes in by the replying side's interface", () => {
    kernel.activate(denyAll);
    const foreign: Packet<number> = { ...udp, source: OUTSIDE, destination: CLIENT };
    see('lan0', foreign, {}, 'out_foreign');
    expect(see('lan0', back(foreign))).toBe(PASSED);
    expect(see('lan0', about(back(foreign), at('10.77.1.9')), quoting(back(foreign)))).toBe(DROPPED);
    expect(kernel.counted()).toMatchObject({ foreign: 2, drop_policy_deny: 1 });
  });

  test("an ICMP error about a flow from an unpoliced interface passes only from the flow's destination to the side that opened the flow", () => {
    kernel.activate(denyAll);
    const foreign: Packet<number> = { ...udp, source: OUTSIDE, destination: CLIENT };
    see('lan0', foreign, {}, 'out_foreign');
    expect(see('lan0', icmp(CLIENT, OUTSIDE, 3, 3), { content: icmpContent(3, 3, quoteOf(foreign)) })).toBe(PASSED);
    expect(see('lan0', icmp(CLIENT, SERVER, 3, 3), { content: icmpContent(3, 3, quoteOf(foreign)) })).toBe(DROPPED);
    expect(see('wan0', icmp(SERVER, OUTSIDE, 3, 3), { content: icmpContent(3, 3, quoteOf(foreign)) })).toBe(DROPPED);
    expect(kernel.counted()).toMatchObject({ icmp_related: 1, drop_policy_deny: 2 });
  });

  test('an ICMP error about a flow is dropped if the source of the ICMP error is forged', () => {
    answered();
    expect(see('wan0', about(asked, at(ADDRESSES.client)), quoting(asked))).toBe(DROPPED);
    expect(see('wan0', about(asked, at('0.1.2.3')), quoting(asked))).toBe(DROPPED);
    expect(kernel.counted()).toMatchObject({ drop_spoofed_source: 2 });
  });
});

test('echo requests of the server do not pass as replies to an echo request of the client', () => {
  load();
  const request: Packet<number> = { ...echo, source: CLIENT, destination: SERVER };
  see('lan0', request);
  kernel.activate(denyAll);
  expect(see('wan0', { ...back(request), icmpType: 8 })).toBe(DROPPED);
  expect(see('wan0', { ...tcp, source: SERVER, destination: CLIENT }, { tcpFlags: TCP.syn })).toBe(DROPPED);
});

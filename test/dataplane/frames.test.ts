import { describe, expect, test } from 'vitest';
import { IPPROTO, type Packet, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { allowAll } from '#test/kernel/policies.js';
import { echo, udp } from './conversation.js';
import { type FrameOptions, writeFrame, writeIpv6Frame } from './frame.js';
import { kernelOfFile } from './kernel-of-file.js';
import { DROPPED, type Entry, loadForTest, PASSED, SKB } from './loaded.js';
import { GUARD_BIT } from './marks.js';

/** The packet `udp` with TCP: also to port 53. */
const tcp: Packet<number> = { ...udp, protocol: IPPROTO.tcp };

const kernel = kernelOfFile(allowAll);

/** Runs the ingress hook on the frame of this packet without its last `cut` bytes. Returns the TC action. */
function classify(packet: Packet<number>, options: FrameOptions = {}, cut = 0): number {
  return kernel.runFrame(writeFrame(kernel.frame, packet, options) - cut).returned;
}

describe('malformed frames', () => {
  test.each<[string, Packet<number>, FrameOptions, number]>([
    ['its version is not 4', udp, { version: 6 }, 0],
    ['its header has less than 5 words', udp, { headerWords: 4 }, 0],
    ['its header is longer than the packet', udp, { headerWords: 15, payloadBytes: 0 }, 0],
    ['its length is less than its header', udp, { totalLength: 19 }, 0],
    ['its length is more than the frame', udp, { totalLength: 400 }, 0],
    ['it ends in the IPv4 options', udp, { optionBytes: 40, totalLength: 60 }, 40],
    ['it ends in the UDP header', udp, { totalLength: 27 }, 0],
    ['it ends in the TCP header', tcp, { totalLength: 39 }, 0],
    ['it ends in the ICMP header', echo, { totalLength: 27 }, 0],
    ['it ends in the SCTP header', { ...udp, protocol: IPPROTO.sctp }, { totalLength: 31 }, 0],
  ])('an IPv4 frame is dropped as malformed when a version or length is wrong: %s', (_, packet, options, cut) => {
    expect(classify(packet, options, cut)).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ drop_malformed: 1 });
  });

  test('a frame is dropped as malformed when its TCP header length exceeds the packet', () => {
    const length = writeFrame(kernel.frame, tcp);
    kernel.frame[14 + 20 + 12] = 15 << 4;
    expect(kernel.runFrame(length).returned).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ drop_malformed: 1 });
  });
});

test.each([
  ['ARP', 0x0806, PASSED, { arp: 1 }],
  ['IPv6', 0x86dd, DROPPED, { drop_ipv6: 1 }],
  ['an unknown protocol', 0x1234, DROPPED, { drop_non_ipv4: 1 }],
  ['a stacked 802.1Q tag', 0x8100, DROPPED, { drop_vlan_tagged: 1 }],
  ['a stacked 802.1ad tag', 0x88a8, DROPPED, { drop_vlan_tagged: 1 }],
])(
  'the datapath passes ARP frames, drops frames with another EtherType than IPv4, and counts them (frame: %s)',
  (_, etherType, returned, counted) => {
    expect(classify(udp, { etherType, payloadBytes: 60 })).toBe(returned);
    expect(kernel.counted()).toEqual(counted);
  },
);

test.each([
  ['ipv6', 'IPv6', { passIpv6: true }, 0x86dd, 0x1234, { drop_non_ipv4: 2 }],
  ['non_ipv4', 'an unknown EtherType', { passNonIpv4: true }, 0x1234, 0x86dd, { drop_ipv6: 2 }],
])(
  "if only the setting %s is `pass`, only %s passes, with the mark bit that Weir's nftables rules require, also if the node itself sends it; a frame with stacked VLAN tags is still dropped",
  (_, __, settings, passing, other, dropped) => {
    const lenient = loadForTest({ ...settings, policeLocal: true });
    const run = (etherType: number, entry?: Entry) => lenient.runPacket(udp, { etherType, payloadBytes: 60 }, 7, entry);
    expect(run(passing)).toEqual({ returned: PASSED, word: 0, mark: GUARD_BIT | 7 });
    expect(run(passing, 'out_of_node').returned).toBe(PASSED);
    expect([run(other), run(other, 'out_of_node'), run(0x8100)].map(({ returned }) => returned)).toEqual([
      DROPPED,
      DROPPED,
      DROPPED,
    ]);
    expect(lenient.counted()).toEqual({ non_ipv4: 2, ...dropped, drop_vlan_tagged: 1 });
    lenient.close();
  },
);

const LISTENER = (type: number, next = 58, length = 0): Uint8Array =>
  Uint8Array.from([next, length, 5, 2, 0, 0, 1, 0, type, 0, 0, 0]);

type Ipv6Case = [what: string, nextHeader: number, hopLimit: number, content: Uint8Array, passes: boolean];
test.each<Ipv6Case>([
  ...[133, 134, 135, 136, 137].map((type): Ipv6Case => [`ICMPv6 ${type}`, 58, 255, Uint8Array.of(type), true]),
  ...[130, 131, 132, 143].map((type): Ipv6Case => [`MLD ${type}`, 0, 1, LISTENER(type), true]),
  ['a neighbour solicitation that was forwarded', 58, 254, Uint8Array.of(135), false],
  ['a neighbour solicitation without a type', 58, 255, new Uint8Array(0), false],
  ['a router renumbering', 58, 255, Uint8Array.of(138), false],
  ['an echo request', 58, 255, Uint8Array.of(128), false],
  ['a neighbour solicitation behind a hop-by-hop header', 0, 255, LISTENER(135), false],
  ['an MLD report that may be forwarded', 0, 2, LISTENER(143), false],
  ['an MLD report without a router alert', 58, 1, Uint8Array.of(143), false],
  ['an MLD report behind a longer header', 0, 1, LISTENER(143, 58, 1), false],
  ['an MLD report that ends before its type', 0, 1, LISTENER(143).subarray(0, 8), false],
  ['UDP in the place of an MLD report', 0, 1, LISTENER(143, 17), false],
  ['TCP', 6, 255, new Uint8Array(20), false],
])(
  'IPv6 neighbour discovery and MLD pass, other IPv6 is dropped (packet: %s)',
  (_, nextHeader, hopLimit, content, passes) => {
    const policing = loadForTest({ policeLocal: true });
    const length = writeIpv6Frame(policing.frame, { nextHeader, hopLimit, content });
    const judged = (['in', 'out_of_node'] as const).map((entry) => policing.runFrame(length, 0, entry));
    expect(judged.map(({ returned }) => returned)).toEqual(passes ? [PASSED, PASSED] : [DROPPED, DROPPED]);
    expect(judged[0]?.mark).toBe(0);
    expect(policing.counted()).toEqual(passes ? { to_node: 1, from_node: 1 } : { drop_ipv6: 2 });
    policing.close();
  },
);

test('the datapath reads the ports behind IPv4 options of any length', () => {
  for (let optionBytes = 0; optionBytes <= 40; optionBytes += 4) {
    for (const protocol of PORT_PROTOCOLS) expect(classify({ ...udp, protocol }, { optionBytes })).toBe(PASSED);
  }
  expect(kernel.counted()).toEqual({ allow: 55, half_opened: 5 });
});

test.each([
  ['with a segment count of the kernel', 3, 600, 3],
  ['without a segment count', 0, 600, 3],
  ['with one segment', 0, 1_500, 1],
  ['with a segment size of 0', 0, 0, 1],
])(
  'a frame that was merged from several segments (GRO) counts as its number of packets on the wire (frame %s)',
  (_, segments, bytes, packets) => {
    kernel.context.setUint32(SKB.gsoSegments, segments, true);
    kernel.context.setUint32(SKB.gsoSize, bytes, true);
    classify(tcp, { payloadBytes: 1_500 });
    expect(kernel.counted()).toMatchObject({ allow: packets });
  },
);

test('every packet is dropped with the reason no_policy before a policy is activated', () => {
  const fresh = loadForTest();
  const returned = [udp, tcp, echo].map((packet) => fresh.runPacket(packet).returned);
  expect(returned).toEqual([DROPPED, DROPPED, DROPPED]);
  expect(fresh.counted()).toEqual({ drop_no_policy: 3 });
  fresh.close();
});

test('the datapath drops packets with the reason program_damaged if the compiled policy in its BPF map is damaged', () => {
  kernel.activate({ ...allowAll, lists: { ...allowAll.lists, defaults: new Uint32Array(1) } });
  expect(classify(udp)).toBe(DROPPED);
  expect(kernel.counted()).toEqual({ drop_program_damaged: 1 });
});

test.each([
  ['UDP', udp],
  ['a SYN', tcp],
])(
  'with redirection of DNS (divertDns), a DNS query by %s opens no flow, and is dropped while no DNS proxy listens',
  (_, lookup) => {
    const diverting = loadForTest({ divertDns: true });
    try {
      diverting.activate(allowAll);
      expect(diverting.runPacket(lookup).returned).toBe(DROPPED);
      expect(diverting.counted()).toEqual({ drop_dns_proxy_absent: 1 });
      expect(diverting.runPacket({ ...lookup, destinationPort: 54 }).returned).toBe(PASSED);
    } finally {
      diverting.close();
    }
  },
);

test.each([
  ['UDP', udp],
  ['a SYN', tcp],
])(
  'a datapath that takes over from an earlier datapath drops a DNS query by %s while no DNS proxy listens',
  (_, lookup) => {
    const diverting = loadForTest({ divertDns: true, handsOver: true });
    try {
      diverting.activate(allowAll);
      // With `handsOver`, the datapath hands a dropped packet to the program of the earlier datapath. This
      // program is missing in the test, so the drop reason is no_policy.
      expect(diverting.runPacket(lookup).returned).toBe(DROPPED);
      expect(diverting.counted()).toEqual({ drop_no_policy: 1 });
      expect(diverting.runPacket({ ...lookup, destinationPort: 54 }).returned).toBe(PASSED);
    } finally {
      diverting.close();
    }
  },
);

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PRIORITY } from '#contracts/datapath/datapath-numbers.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { denyAll } from '#test/kernel/policies.js';
import { back, CLIENT, echo, gre, onlyClient, tcp, udp } from './conversation.js';
import { type FrameOptions, TCP } from './frame.js';
import { DROPPED, type Entry, type Loaded, loadForTest, PASSED, type PacketResult, SKB } from './loaded.js';
import { GUARD_BIT } from './marks.js';

let kernel: Loaded;
beforeAll(() => {
  kernel = loadForTest({ policeLocal: true });
});
afterAll(() => kernel.close());

const see = (entry: Entry, packet: Packet<number>, options: FrameOptions = {}): number =>
  kernel.runPacket(packet, options, 0, entry).returned;

const ANSWERS = [
  ['UDP', udp, 0, 0],
  ['TCP', tcp, TCP.syn, TCP.syn | TCP.ack],
  ['ICMP echo', echo, 0, 0],
  ['a protocol without ports', gre, 0, 0],
] as const;

describe('a packet from an unpoliced interface to a policed interface', () => {
  beforeEach(() => {
    kernel.forget();
    kernel.activate(denyAll);
  });

  test.each(ANSWERS)(
    'a packet over %s from an unpoliced to a policed interface opens a flow, and replies pass although the policy denies all packets',
    (_, opening, tcpFlags, replyFlags) => {
      expect(see('in', back(opening), { tcpFlags: replyFlags })).toBe(DROPPED);
      expect(see('out_foreign', opening, { tcpFlags })).toBe(PASSED);
      expect(see('in', back(opening), { tcpFlags: replyFlags })).toBe(PASSED);
      expect(see('out_foreign', opening, { tcpFlags: TCP.ack })).toBe(PASSED);
      expect(kernel.flowsIn('half_open')).toEqual([]);
      expect(kernel.flowsIn('flows')).toMatchObject([{ source: CLIENT, foreign: true, packets: [2n, 1n] }]);
    },
  );

  test.each(ANSWERS)(
    'a flow opened from an unpoliced interface admits only packets in the reply direction (protocol: %s)',
    (_, opening, tcpFlags) => {
      see('out_foreign', opening, { tcpFlags });
      expect(see('in', opening, { tcpFlags })).toBe(DROPPED);
      expect(see('in', back(opening), { tcpFlags: TCP.syn })).toBe(PASSED);
    },
  );

  test('a TCP SYN from an unpoliced interface opens a flow on which the policed side can send an ACK, but not a SYN', () => {
    see('out_foreign', tcp, { tcpFlags: TCP.syn });
    see('in', back(tcp), { tcpFlags: TCP.syn | TCP.ack });
    see('out_foreign', tcp, { tcpFlags: TCP.ack });
    expect(see('in', back(tcp), { tcpFlags: TCP.ack })).toBe(PASSED);
    expect(see('in', back(tcp), { tcpFlags: TCP.syn })).toBe(DROPPED);
    expect(see('in', back(tcp), { tcpFlags: TCP.ack })).toBe(PASSED);
  });

  test('a TCP ACK without a flow from an unpoliced interface opens a half-open flow, and a reply establishes the flow', () => {
    for (let sourcePort = 1; sourcePort <= 100; sourcePort++) {
      see('out_foreign', { ...tcp, sourcePort }, { tcpFlags: TCP.ack });
    }
    expect(kernel.flowsIn('flows')).toEqual([]);
    expect(see('in', back({ ...tcp, sourcePort: 7 }), { tcpFlags: TCP.ack })).toBe(PASSED);
    expect(kernel.flowsIn('flows')).toMatchObject([{ sourcePort: 7, state: 'tcp_established', foreign: true }]);
  });
});

describe('replies from an unpoliced interface to a policed client', () => {
  beforeEach(() => {
    kernel.forget();
    kernel.activate(onlyClient);
  });

  test.each(ANSWERS)(
    'replies from an unpoliced interface establish the flow that a policed client opened over %s',
    (_, opening, tcpFlags, replyFlags) => {
      expect(see('in', opening, { tcpFlags })).toBe(PASSED);
      expect(see('out_foreign', back(opening), { tcpFlags: replyFlags })).toBe(PASSED);
      expect(see('in', opening, { tcpFlags: TCP.ack })).toBe(PASSED);
      expect(kernel.flowsIn('half_open')).toEqual([]);
      expect(kernel.flowsIn('flows')).toMatchObject([
        { source: CLIENT, foreign: false, epoch: expect.any(Number), word: VERDICT_NUMBER.allow, packets: [2n, 1n] },
      ]);
    },
  );

  test('a reply with FIN from an unpoliced interface moves a TCP flow to the state tcp_closing after the client has sent a FIN', () => {
    see('in', tcp, { tcpFlags: TCP.syn });
    see('out_foreign', back(tcp), { tcpFlags: TCP.syn | TCP.ack });
    see('in', tcp, { tcpFlags: TCP.ack });
    see('out_foreign', back(tcp), { tcpFlags: TCP.fin | TCP.ack, payloadBytes: 0 });
    see('in', tcp, { tcpFlags: TCP.fin | TCP.ack, acknowledgment: 1, payloadBytes: 0 });
    see('out_foreign', back(tcp), { tcpFlags: TCP.ack, sequence: 1, acknowledgment: 1, payloadBytes: 0 });
    expect(kernel.flowsIn('flows')).toMatchObject([{ state: 'tcp_closing' }]);
  });

  test('a packet with the address of the client does not count as a reply from an unpoliced interface, and leaves the flow half open', () => {
    see('in', udp);
    see('out_foreign', udp);
    expect(kernel.flowsIn('half_open')).toMatchObject([{ packets: [1n, 0n] }]);
  });
});

describe('police_local', () => {
  beforeEach(() => {
    kernel.forget();
    kernel.activate(onlyClient);
  });
  const passed: PacketResult = { returned: PASSED, word: VERDICT_NUMBER.allow, mark: GUARD_BIT };

  test('with police_local, the egress hook classifies packets of the node, and the ingress hook passes the replies', () => {
    expect(kernel.runPacket(udp, {}, 0, 'out_of_node')).toEqual(passed);
    expect(kernel.runPacket(back(udp))).toEqual(passed);
    expect(kernel.runPacket(back({ ...udp, sourcePort: 9 }), {}, 0, 'out_of_node').returned).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ allow: 2, half_opened: 1, flows_opened: 1, drop_policy_deny: 1 });
  });

  test('with police_local, the egress hook passes replies of the node to packets that the ingress hook allowed', () => {
    expect(kernel.runPacket(udp)).toEqual(passed);
    expect(kernel.runPacket(back(udp), {}, 0, 'out_of_node')).toEqual(passed);
  });

  test('with police_local, a packet of an exempt socket passes the egress hook and opens a flow for its replies only', () => {
    kernel.activate(denyAll);
    expect(see('out_exempt', udp)).toBe(PASSED);
    expect(see('out_of_node', udp)).toBe(DROPPED);
    expect(see('in', back(udp))).toBe(PASSED);
    expect(see('in', udp)).toBe(DROPPED);
    expect(see('in', back({ ...udp, sourcePort: 9 }))).toBe(DROPPED);
  });

  test("with police_local, the egress hook drops a denied packet of the node even if its mark has the bit that Weir's nftables rules require", () => {
    expect(kernel.runPacket(udp, {}, GUARD_BIT, 'out_of_node')).toEqual({ ...passed, mark: GUARD_BIT });
    expect(kernel.runPacket(back({ ...udp, sourcePort: 9 }), {}, GUARD_BIT, 'out_of_node').returned).toBe(DROPPED);
  });

  test.each(Object.entries(PRIORITY))(
    "with police_local, the ingress hook sets the skb->priority `%s` of a packet that it passes without a mark to 0, as a tunnelled packet inherits the outer packet's priority",
    (_, priority) => {
      kernel.context.setUint32(SKB.priority, priority, true);
      expect(see('in', udp, { etherType: 0x0806, payloadBytes: 60 })).toBe(PASSED);
      kernel.context.setUint32(SKB.priority, 0, true);
      expect(kernel.contextOut.getUint32(SKB.priority, true)).toBe(0);
    },
  );

  test('with police_local, the ingress hook sets skb->priority of a passed packet to the value from which nftables derives the mark, and the egress hook keeps the priority of the sender', () => {
    const INTERACTIVE = 6;
    const priorityAfter = (entry: Entry, packet: Packet<number>): number => {
      kernel.context.setUint32(SKB.priority, INTERACTIVE, true);
      expect(see(entry, packet)).toBe(PASSED);
      kernel.context.setUint32(SKB.priority, 0, true);
      return kernel.contextOut.getUint32(SKB.priority, true);
    };
    expect([
      priorityAfter('in', udp),
      priorityAfter('out_of_node', back(udp)),
      priorityAfter('out_exempt', udp),
      priorityAfter('out_foreign', gre),
    ]).toEqual([PRIORITY.passed, INTERACTIVE, INTERACTIVE, INTERACTIVE]);
  });

  test('with police_local, the egress hook drops IPv6 packets and frames with other EtherTypes of the node, and passes ARP', () => {
    expect(see('out_of_node', udp, { etherType: 0x86dd, payloadBytes: 40 })).toBe(DROPPED);
    expect(see('out_of_node', udp, { etherType: 0x1234, payloadBytes: 40 })).toBe(DROPPED);
    expect(see('out_of_node', udp, { etherType: 0x0806 })).toBe(PASSED);
    expect(kernel.counted()).toEqual({ drop_ipv6: 1, drop_non_ipv4: 1, arp: 1 });
  });
});

test('without police_local, the egress hook passes and counts packets of the node but does not classify them', () => {
  const lenient = loadForTest();
  lenient.activate(denyAll);
  expect(lenient.runPacket(udp, {}, 0, 'out_of_node').returned).toBe(PASSED);
  expect(lenient.runPacket(back(udp)).returned).toBe(DROPPED);
  expect(lenient.counted()).toEqual({ from_node: 1, drop_policy_deny: 1 });
  lenient.close();
});

test('the egress hook passes a packet that the ingress hook classified, and does not classify the packet again', () => {
  kernel.forget();
  kernel.activate(denyAll);
  expect(kernel.runPacket(udp, {}, GUARD_BIT, 'out_foreign')).toEqual({ returned: PASSED, word: 0, mark: GUARD_BIT });
  expect(kernel.counted()).toEqual({});
});

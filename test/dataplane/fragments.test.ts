import { describe, expect, test } from 'vitest';
import { bitsOf } from '#addresses/ip-address.js';
import { type AddressOf, type Family, IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { defaultOnly } from '#test/kernel/policies.js';
import { back, CONVERSATIONS, compileForBoth, onlyFrom } from './conversation.js';
import { FAMILY_FRAMES } from './family-frames.js';
import { ETHERNET, MAX_FRAME, MORE_FRAGMENTS, TCP } from './frame.js';
import { NEXT, optionHeader } from './ipv6-frame.js';
import { kernelOfFile } from './kernel-of-file.js';
import { DROPPED, PASSED } from './loaded.js';

/**
 * For each family, the length of the IP header, and the greatest length that a datagram can have after this
 * header (and after the fragment header).
 */
const LENGTHS = { ipv4: { header: 20, longest: 65_515 }, ipv6: { header: 40, longest: 65_535 } } as const;

type Part = { readonly from: number; readonly bytes: number; readonly more?: boolean; readonly id?: number };

const FIRST: Part = { from: 0, bytes: 48 };
const MIDDLE: Part = { from: 48, bytes: 48 };
const LAST: Part = { from: 96, bytes: 30, more: false };

function fragmentTests<F extends Family>(family: F): void {
  const { client, server, stranger, udp, tcp, echo, gre } = CONVERSATIONS[family];
  const { header, longest } = LENGTHS[family];
  const last = longest - (longest % 8);
  const { write } = FAMILY_FRAMES[family];
  const onlyClient = compileForBoth(onlyFrom(client));
  const kernel = kernelOfFile(onlyClient, { family });

  /**
   * Sends one fragment of the datagram of `packet`, and returns whether the fragment passes. `from` and
   * `bytes` are offset and length in the payload of the IP packet.
   */
  function send(
    packet: Packet<AddressOf<F>>,
    { from, bytes, more = true, id = 7 }: Part,
    tcpFlags: number = TCP.syn,
  ): boolean {
    const whole = new Uint8Array(MAX_FRAME);
    const length = write(whole, packet, { payloadBytes: 200, tcpFlags });
    const content = new Uint8Array(bytes);
    const start = ETHERNET + header + from;
    if (from < 200) content.set(whole.subarray(start, Math.min(length, start + bytes)));
    const fragment = (more ? MORE_FRAGMENTS : 0) | (from / 8);
    return kernel.runPacket(packet, { id, fragment, content }).returned === PASSED;
  }
  const parts = (packet: Packet<AddressOf<F>>, ...sent: Part[]): boolean[] => sent.map((part) => send(packet, part));

  const KINDS: [string, Packet<AddressOf<F>>][] = [
    ['UDP', udp],
    ['TCP', tcp],
    ['ICMP echo', echo],
    ['GRE', gre],
    ['SCTP', { ...udp, protocol: IPPROTO.sctp }],
  ];

  describe('later fragments of a datagram', () => {
    test.each(KINDS)(
      'later fragments of a datagram pass in order after the first fragment has passed (protocol: %s)',
      (_, packet) => {
        expect(parts(packet, FIRST, MIDDLE, LAST)).toEqual([true, true, true]);
        expect(kernel.counted()).toMatchObject({ allow: 3, half_opened: 1 });
      },
    );

    test.each(KINDS)(
      'later fragments of a datagram pass if the datagram is a reply of an open flow (protocol: %s)',
      (_, packet) => {
        send(packet, FIRST);
        expect(send(back(packet), FIRST, TCP.syn | TCP.ack)).toBe(true);
        expect(parts(back(packet), LAST, MIDDLE)).toEqual([true, true]);
      },
    );

    test('later fragments of a datagram pass if the last fragment arrives before the middle fragment', () => {
      expect(parts(udp, FIRST, LAST, MIDDLE)).toEqual([true, true, true]);
    });

    test('later fragments of a datagram are dropped until the first fragment has passed', () => {
      expect(parts(udp, LAST, MIDDLE, FIRST, LAST, MIDDLE)).toEqual([false, false, true, true, true]);
      expect(kernel.counted()).toMatchObject({ drop_fragment: 2, allow: 3 });
    });

    test('later fragments of a datagram are dropped if identification, source, destination or (IPv4) protocol differ from the first fragment', () => {
      send(udp, FIRST);
      expect(send(udp, { ...MIDDLE, id: 8 })).toBe(false);
      expect(send({ ...udp, source: stranger }, MIDDLE)).toBe(false);
      expect(send({ ...udp, destination: stranger }, MIDDLE)).toBe(false);
      if (family === 'ipv4') expect(send({ ...udp, protocol: IPPROTO.udplite }, MIDDLE)).toBe(false);
      expect(send(udp, MIDDLE)).toBe(true);
    });

    test('later fragments of a datagram are dropped if they arrive a second time, or after the datagram is complete', () => {
      expect(parts(udp, FIRST, MIDDLE, LAST, LAST, MIDDLE)).toEqual([true, true, true, false, false]);
      expect(parts(udp, FIRST, MIDDLE, MIDDLE, LAST)).toEqual([true, true, false, false]);
      expect(kernel.counted()).toMatchObject({ drop_fragment: 3, drop_fragment_overlap: 1 });
    });

    test('later fragments of a datagram are dropped if the first fragment was denied, even after an allowed datagram with the same identification', () => {
      send(udp, FIRST);
      expect(send({ ...back(udp), sourcePort: 99 }, FIRST)).toBe(false);
      const other = compileForBoth(defaultOnly('deny'));
      expect(send(udp, MIDDLE)).toBe(true);
      kernel.activate(other);
      expect(send(udp, FIRST)).toBe(false);
      expect(send(udp, LAST)).toBe(false);
      expect(kernel.counted()).toMatchObject({ drop_policy_deny: 2, drop_fragment: 1 });
    });

    test('later fragments of a datagram are dropped while the policy in force denies the datagram', () => {
      send(udp, FIRST);
      kernel.activate(compileForBoth(defaultOnly('deny')));
      expect(send(udp, MIDDLE)).toBe(false);
      kernel.activate(onlyClient);
      expect(send(udp, LAST)).toBe(true);
    });
  });

  describe('the payload of a later fragment', () => {
    test('a later fragment whose payload looks like an allowed packet gets the verdict of its first fragment, because its payload is not parsed', () => {
      const toPort = (port: number) => ({ ...udp, destinationPort: port });
      const rule = {
        ...defaultOnly('deny'),
        groups: [
          {
            id: 'dns',
            pointer: '',
            mode: 'enforce' as const,
            sources: [{ address: client, length: bitsOf(client) }],
            selectors: [],
            defaultAction: undefined,
            rules: [
              {
                id: 'dns',
                pointer: '',
                action: 'allow' as const,
                mode: 'enforce' as const,
                destinations: [],
                hostname: undefined,
                protocol: IPPROTO.udp,
                sourcePorts: [],
                destinationPorts: [{ low: 53, high: 53 }],
                icmpTypes: [],
                icmpCodes: [],
                tls: undefined,
              },
            ],
          },
        ],
      };
      kernel.activate(compileForBoth(rule));
      expect(send(toPort(80), FIRST)).toBe(false);
      const disguised = new Uint8Array(MAX_FRAME);
      const length = write(disguised, toPort(53), { payloadBytes: 40 });
      const content = disguised.slice(ETHERNET + header, length);
      expect(kernel.runPacket(udp, { id: 7, fragment: MORE_FRAGMENTS | 6, content }).returned).toBe(DROPPED);
      expect(send(toPort(53), FIRST)).toBe(true);
      expect(kernel.runPacket(udp, { id: 7, fragment: MORE_FRAGMENTS | 6, content }).returned).toBe(PASSED);
    });
  });

  describe('the validation of fragments', () => {
    test.each<[string, Packet<AddressOf<F>>, Part, string]>([
      ['a TCP header of 8 bytes', tcp, { from: 0, bytes: 8 }, 'drop_fragment_tiny'],
      ['a TCP header of 16 bytes', tcp, { from: 0, bytes: 16 }, 'drop_fragment_tiny'],
      ['an SCTP header of 8 bytes', { ...udp, protocol: IPPROTO.sctp }, { from: 0, bytes: 8 }, 'drop_fragment_tiny'],
      ['a fragment whose length is no multiple of 8', udp, { from: 0, bytes: 49 }, 'drop_malformed'],
      ['a fragment without payload', udp, { from: 48, bytes: 0, more: false }, 'drop_malformed'],
      ['a datagram that is too long', udp, { from: last, bytes: longest - last + 1, more: false }, 'drop_malformed'],
    ])('the datapath drops a fragment that is too small or malformed (%s)', (_, packet, part, counter) => {
      send(packet, FIRST);
      expect(send(packet, part)).toBe(false);
      expect(kernel.counted()).toMatchObject({ [counter]: 1 });
    });

    test('the datapath passes a datagram of the greatest length, and a first fragment with 8 bytes of UDP', () => {
      expect(parts(udp, { from: 0, bytes: 8 }, { from: last, bytes: longest - last, more: false })).toEqual([
        true,
        true,
      ]);
    });

    test.each<[string, Part[]]>([
      ['part of the first fragment', [FIRST, { from: 40, bytes: 16 }]],
      ['bytes 8 to 15 of the first fragment (RFC 1858)', [FIRST, { from: 8, bytes: 8 }]],
      ['from a lower offset into another fragment', [FIRST, { from: 96, bytes: 48 }, { from: 80, bytes: 32 }]],
      ['from a higher offset into another fragment', [FIRST, { from: 96, bytes: 48 }, { from: 120, bytes: 48 }]],
      ['around another fragment', [FIRST, { from: 96, bytes: 16 }, { from: 64, bytes: 96 }]],
      ['inside another fragment', [FIRST, { from: 96, bytes: 96 }, { from: 112, bytes: 16 }]],
      ['the same fragment twice', [FIRST, MIDDLE, MIDDLE]],
      ['the last fragment twice', [FIRST, LAST, LAST]],
      ['two last fragments', [FIRST, LAST, { from: 200, bytes: 9, more: false }]],
      ['two last fragments, the farther one first', [FIRST, { from: 200, bytes: 9, more: false }, LAST]],
      ['a fragment behind the end', [FIRST, LAST, { from: 200, bytes: 8 }]],
      ['a last fragment that ends before another fragment', [FIRST, { from: 200, bytes: 8 }, LAST]],
    ])(
      'the datapath drops a fragment that overlaps another fragment, and all later fragments of the datagram (overlap: %s)',
      (_, sent) => {
        expect(parts(udp, ...sent)).toEqual([...sent.slice(1).map(() => true), false]);
        expect(parts(udp, { from: 320, bytes: 8 })).toEqual([false]);
        expect(kernel.counted()).toMatchObject({ drop_fragment_overlap: 1, drop_fragment: 1 });
      },
    );
  });

  test('a flood of first fragments of one flow opens no second flow, and a later fragment of the last datagram still passes', () => {
    send(udp, FIRST);
    for (let id = 0; id < 20_000; id++) send({ ...udp, source: client }, { ...FIRST, id });
    expect(kernel.flowsIn('half_open')).toMatchObject([{ packets: [20_001n, 0n] }]);
    expect(send(udp, { ...MIDDLE, id: 19_999 })).toBe(true);
    expect(send({ ...udp, source: server }, MIDDLE)).toBe(false);
  });
}

describe('IPv4', () => fragmentTests('ipv4'));
describe('IPv6', () => fragmentTests('ipv6'));

describe('fragments of IPv6 with different headers', () => {
  const kernel = kernelOfFile(compileForBoth(onlyFrom(CONVERSATIONS.ipv6.client)), { family: 'ipv6' });
  const { udp, tcp, client } = CONVERSATIONS.ipv6;
  const destination = optionHeader(NEXT.destination);
  const first = { id: 7, fragment: MORE_FRAGMENTS, payloadBytes: 8 };
  const later = { id: 7, content: new Uint8Array(8) };

  test.each([
    ['TCP', IPPROTO.tcp],
    ['destination options', NEXT.destination],
    ['a routing header', NEXT.routing],
    ['no next header', NEXT.none],
  ])(
    'a later fragment of IPv6 gets the verdict and the flow of its first fragment if its fragment header names another header: %s',
    (_, nextHeader) => {
      expect(kernel.runPacket(udp, first).returned).toBe(PASSED);
      expect(kernel.runPacket(udp, { ...later, nextHeader, fragment: 2 }).returned).toBe(PASSED);
      expect(kernel.flowsIn('half_open')).toMatchObject([{ protocol: IPPROTO.udp, packets: [2n, 0n] }]);
    },
  );

  test('extension headers after the fragment header are bytes of the datagram, which a later fragment must not overlap', () => {
    const extended = { ...first, fragmented: [destination, destination] };
    for (const unit of [1, 2, 3]) {
      expect(kernel.runPacket(udp, extended).returned).toBe(PASSED);
      expect(kernel.runPacket(udp, { ...later, fragment: unit }).returned).toBe(DROPPED);
    }
    expect(kernel.runPacket(udp, extended).returned).toBe(PASSED);
    expect(kernel.runPacket(udp, { ...later, fragment: 4 }).returned).toBe(PASSED);
    expect(kernel.counted()).toMatchObject({ allow: 5, drop_fragment_overlap: 3 });
  });

  test('a packet that is its only fragment passes as a whole packet, also with the identification of another datagram', () => {
    expect(kernel.runPacket(udp, first).returned).toBe(PASSED);
    for (let times = 0; times < 2; times++) expect(kernel.runPacket(udp, { id: 7, fragment: 0 }).returned).toBe(PASSED);
    expect(kernel.runPacket(udp, { ...later, fragment: 2 }).returned).toBe(PASSED);
  });

  test('the datapath drops a first fragment of IPv6 that ends before or in the header of the packet', () => {
    const tiny = { id: 7, fragment: MORE_FRAGMENTS };
    expect(kernel.runPacket(tcp, { ...tiny, content: new Uint8Array(8), fragmented: [destination] }).returned).toBe(
      DROPPED,
    );
    const content = Uint8Array.from([IPPROTO.tcp, 1, 0, 0, 0, 0, 0, 0]);
    const cut = { ...tcp, source: client, protocol: NEXT.destination };
    expect(kernel.runPacket(cut, { ...tiny, content }).returned).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ drop_fragment_tiny: 2 });
  });
});

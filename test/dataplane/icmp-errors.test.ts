import { beforeEach, describe, expect, test } from 'vitest';
import type { AddressOf, Family, Packet } from '#contracts/policy/policy-model.js';
import { defaultOnly } from '#test/kernel/policies.js';
import { back, CONVERSATIONS, compileForBoth, icmp, onlyFrom } from './conversation.js';
import { FAMILY_FRAMES } from './family-frames.js';
import { icmpContent, MORE_FRAGMENTS, quoteOf, TCP } from './frame.js';
import { NEXT, optionHeader, quoteOfIpv6, routingHeader } from './ipv6-frame.js';
import { kernelOfFile } from './kernel-of-file.js';
import { DROPPED, PASSED } from './loaded.js';

type Kind = readonly [number, number];
const allCodes = (type: number): Kind[] => Array.from({ length: 256 }, (_, code) => [type, code] as const);

/** The numbers of ICMP in each family, and the length of the IP header. */
const NUMBERS = {
  ipv4: {
    errors: [...allCodes(3), [4, 0], [11, 0], [11, 1], [12, 0], [12, 2]] as readonly Kind[],
    tooBig: [3, 4] as Kind,
    refused: [3, 3] as Kind,
    redirect: 5,
    echoRequest: 8,
    header: 20,
  },
  ipv6: {
    errors: [...allCodes(1), ...allCodes(2), [3, 0], [3, 1], [4, 0], [4, 1], [4, 2]] as readonly Kind[],
    tooBig: [2, 0] as Kind,
    refused: [1, 4] as Kind,
    redirect: 137,
    echoRequest: 128,
    header: 40,
  },
} as const;

type Quote<F extends Family> = {
  readonly from?: AddressOf<F>;
  readonly to?: AddressOf<F>;
  readonly content?: Uint8Array;
  readonly fragment?: number;
};

function errorTests<F extends Family>(family: F): void {
  const { client: CLIENT, server: SERVER, stranger: STRANGER, udp, tcp, echo, gre } = CONVERSATIONS[family];
  const { errors: ERRORS, tooBig, refused, redirect, echoRequest, header } = NUMBERS[family];
  const { quote } = FAMILY_FRAMES[family];
  const ROUTER = STRANGER;
  const onlyClient = compileForBoth(onlyFrom(CLIENT));
  const kernel = kernelOfFile(onlyClient, { family });

  /**
   * Sends an ICMP error that quotes the packet `about`, by default from `ROUTER` to the source of `about`.
   * Returns whether the error passes.
   */
  function error(about: Packet<AddressOf<F>>, [type, code]: Kind, sent: Quote<F> = {}): boolean {
    const content = icmpContent(type, code, sent.content ?? quote(about));
    const message = icmp(sent.from ?? ROUTER, sent.to ?? about.source, type, code);
    return (
      kernel.runPacket(message, { content, ...(sent.fragment === undefined ? {} : { fragment: sent.fragment }) })
        .returned === PASSED
    );
  }
  const open = (packet: Packet<AddressOf<F>>): void => void kernel.runPacket(packet, { tcpFlags: TCP.syn });

  describe('ICMP errors about packets of an allowed flow', () => {
    test.each([
      ['UDP', udp],
      ['TCP', tcp],
      ['ICMP echo', echo],
      ['GRE', gre],
    ])('an ICMP error of every type and code passes if it quotes a packet of an allowed flow over %s', (_, packet) => {
      expect(ERRORS.filter((kind) => error(packet, kind))).toEqual([]);
      open(packet);
      expect(ERRORS.filter((kind) => !error(packet, kind))).toEqual([]);
      expect(kernel.counted().icmp_related).toBe(ERRORS.length);
    });

    test('ICMP errors of all types about an established TCP flow pass, and change neither the state of the flow nor the time of its last packet', () => {
      for (const tcpFlags of [TCP.syn, TCP.ack]) kernel.runPacket(tcp, { tcpFlags });
      kernel.runPacket(back(tcp), { tcpFlags: TCP.syn | TCP.ack });
      const before = kernel.records();
      expect(ERRORS.filter((kind) => !error(tcp, kind))).toEqual([]);
      expect(kernel.records()).toEqual(before);
    });

    test('an ICMP error to the sender of a reply passes if the error quotes that reply', () => {
      open(udp);
      expect(error(back(udp), tooBig)).toBe(true);
    });

    test('an ICMP error that quotes a packet of an allowed flow passes if the quote is long', () => {
      open(udp);
      expect(error(udp, tooBig, { content: quote(udp, { payloadBytes: 500 }, 508) })).toBe(true);
    });

    test('an ICMP error about a half-open TCP flow leaves the flow unchanged', () => {
      open(tcp);
      const before = kernel.flowsIn('half_open');
      error(tcp, refused);
      expect(kernel.flowsIn('half_open')).toEqual(before);
    });
  });

  describe('ICMP errors that no open flow admits', () => {
    beforeEach(() => open(udp));

    test.each<[string, Packet<AddressOf<F>>, Quote<F>]>([
      ['the flow has another port', { ...udp, sourcePort: 40_001 }, {}],
      ['the flow has another protocol', { ...udp, protocol: 136 }, {}],
      ['the error goes to a third host', udp, { to: STRANGER }],
      ['the error goes to the destination of the quoted packet', udp, { to: SERVER }],
      ['the quote ends in the ports', udp, { content: quote(udp).subarray(0, 8 + header + 7) }],
      ['the quote ends in the IP header', udp, { content: quote(udp).subarray(0, 8 + header - 1) }],
      ['the error quotes no packet', udp, { content: new Uint8Array(8) }],
      ['the quote is of another version of IP', udp, { content: quote(udp, { version: 5 }) }],
      ['the error quotes a later fragment', udp, { content: quote(udp, { fragment: 1 }) }],
      [
        'the error is the first fragment of an error',
        udp,
        { fragment: MORE_FRAGMENTS, content: quote(udp, {}, 16 - (header % 8)) },
      ],
    ])('an open flow does not admit an ICMP error that is malformed or does not fit the flow: %s', (_, about, sent) => {
      expect(error(about, tooBig, sent)).toBe(false);
      expect(kernel.counted()).toMatchObject({ drop_policy_deny: 1 });
    });

    test('an open flow does not admit an ICMP redirect: the datapath drops every redirect', () => {
      expect([0, 1, 2, 3].filter((code) => error(udp, [redirect, code]))).toEqual([]);
      kernel.activate(compileForBoth(onlyFrom(ROUTER)));
      expect([0, 1, 2, 3].filter((code) => error(udp, [redirect, code]))).toEqual([]);
      expect(kernel.counted()).toMatchObject({ drop_icmp_redirect: 8 });
    });

    test('an open flow does not admit an ICMP error if the policy in force denies the flow', () => {
      kernel.activate(compileForBoth(defaultOnly('deny')));
      expect(error(udp, tooBig)).toBe(false);
      expect(kernel.counted()).toEqual({ allow: 1, half_opened: 1, drop_policy_deny: 1 });
    });

    test('an open flow does not admit an ICMP error that is only the payload of a later fragment, which the datapath does not parse', () => {
      kernel.activate(compileForBoth(onlyFrom(ROUTER)));
      const message = icmp(ROUTER, CLIENT, ...tooBig);
      const first = { id: 5, fragment: MORE_FRAGMENTS, content: icmpContent(...tooBig, new Uint8Array(16)) };
      expect(kernel.runPacket(message, first).returned).toBe(PASSED);
      const looksLike = icmpContent(...tooBig, quote(udp));
      expect(kernel.runPacket(message, { id: 5, fragment: 2, content: looksLike }).returned).toBe(PASSED);
      expect(kernel.counted()).toMatchObject({ allow: 3 });
      expect(kernel.counted()).not.toHaveProperty('icmp_related');
    });
  });

  describe('an echo request from the destination of an echo flow', () => {
    test('an echo request from the destination of an echo flow is classified by the policy, even with the identifier of the flow', () => {
      open(echo);
      expect(kernel.runPacket({ ...back(echo), icmpType: echoRequest }).returned).toBe(DROPPED);
      expect(kernel.runPacket(back(echo)).returned).toBe(PASSED);
      expect(kernel.runPacket(back(echo), { icmpId: 78 }).returned).toBe(DROPPED);
    });
  });

  test('the policy classifies ICMP packets without a flow, for every type and code except redirects', () => {
    const kinds = Array.from({ length: 65_536 }, (_, kind) => kind).filter((kind) => kind >> 8 !== redirect);
    const passes = (source: AddressOf<F>) => (kind: number) =>
      kernel.runPacket(icmp(source, SERVER, kind >> 8, kind & 255), { icmpId: kind }).returned === PASSED;
    expect(kinds.filter(passes(STRANGER))).toEqual([]);
    expect(kinds.filter((kind) => !passes(CLIENT)(kind))).toEqual([]);
  });
}

describe('IPv4', () => errorTests('ipv4'));
describe('IPv6', () => errorTests('ipv6'));

describe('the header of IPv4 in an ICMP error', () => {
  const { client, stranger, udp } = CONVERSATIONS.ipv4;
  const kernel = kernelOfFile(compileForBoth(onlyFrom(client)));

  test.each([
    ['passes if the quoted header has options', true, quoteOf(udp, { optionBytes: 40 })],
    ['is dropped if the length of the quoted header is too small', false, quoteOf(udp, { headerWords: 4 })],
    ['is dropped if the quoted header extends beyond the packet', false, quoteOf(udp, { headerWords: 15 })],
  ])('an ICMP error about an open flow of IPv4 %s', (_, passes, quoted) => {
    kernel.runPacket(udp);
    const { returned } = kernel.runPacket(icmp(stranger, client, 3, 4), { content: icmpContent(3, 4, quoted) });
    expect(returned === PASSED).toBe(passes);
  });
});

describe('the extension headers of IPv6 in an ICMP error', () => {
  const { client, stranger, udp } = CONVERSATIONS.ipv6;
  const kernel = kernelOfFile(compileForBoth(onlyFrom(client)), { family: 'ipv6' });
  const [hop, destination] = [optionHeader(NEXT.hopByHop, 1), optionHeader(NEXT.destination)];
  const four = [hop, destination, destination, destination];

  test.each<[string, boolean, Uint8Array]>([
    ['passes if it quotes a packet with extension headers', true, quoteOfIpv6(udp, { extensions: four })],
    ['passes if it quotes a first fragment', true, quoteOfIpv6(udp, { fragment: MORE_FRAGMENTS, id: 7 })],
    ['passes if it quotes a packet that is its only fragment', true, quoteOfIpv6(udp, { fragment: 0, id: 7 })],
    ['is dropped if it quotes a later fragment', false, quoteOfIpv6(udp, { fragment: 5, id: 7 })],
    ['is dropped if it quotes five extension headers', false, quoteOfIpv6(udp, { extensions: [...four, destination] })],
    ['is dropped if it quotes a routing header', false, quoteOfIpv6(udp, { extensions: [routingHeader(0)] })],
    ['is dropped if the quote ends in the ports', false, quoteOfIpv6(udp, { extensions: [hop, destination] }, 7)],
    [
      'is dropped if the quote ends in an extension header',
      false,
      quoteOfIpv6(udp, { extensions: [hop] }, 8).subarray(0, 8 + 40 + 12),
    ],
  ])('an ICMP error about an open flow of IPv6 %s', (_, passes, quoted) => {
    kernel.runPacket(udp);
    const content = icmpContent(2, 0, quoted);
    for (const extensions of [[], [destination]]) {
      const { returned } = kernel.runPacket(icmp(stranger, client, 2), { content, extensions });
      expect(returned === PASSED).toBe(passes);
    }
  });
});

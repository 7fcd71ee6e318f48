import { beforeEach, describe, expect, test } from 'vitest';
import type { Packet } from '#contracts/policy/policy-model.js';
import { compile } from '#policy/compile/compile.js';
import { denyAll } from '#test/kernel/policies.js';
import { back, CLIENT, echo, gre, icmp, onlyClient, onlyFrom, SERVER, STRANGER, tcp, udp } from './conversation.js';
import { icmpContent, MORE_FRAGMENTS, quoteOf, TCP } from './frame.js';
import { kernelOfFile } from './kernel-of-file.js';
import { DROPPED, PASSED } from './loaded.js';

const ROUTER = STRANGER;
const ERRORS = [
  ...Array.from({ length: 256 }, (_, code) => [3, code] as const),
  [4, 0],
  [11, 0],
  [11, 1],
  [12, 0],
  [12, 2],
] as const;

const kernel = kernelOfFile(onlyClient);

type Quote = {
  readonly from?: number;
  readonly to?: number;
  readonly content?: Uint8Array;
  readonly fragment?: number;
};

/**
 * Sends an ICMP error that quotes the packet `about`, by default from `ROUTER` to the source of `about`.
 * Returns whether the error passes.
 */
function error(about: Packet<number>, [type, code]: readonly [number, number], quote: Quote = {}): boolean {
  const content = icmpContent(type, code, quote.content ?? quoteOf(about));
  const message = icmp(quote.from ?? ROUTER, quote.to ?? about.source, type, code);
  return kernel.runPacket(message, { content, fragment: quote.fragment ?? 0 }).returned === PASSED;
}
const open = (packet: Packet<number>): void => void kernel.runPacket(packet, { tcpFlags: TCP.syn });

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
    expect(error(back(udp), [3, 4])).toBe(true);
  });

  test('an ICMP error that quotes a packet of an allowed flow passes if the quoted IPv4 header has options, and if the quote is long', () => {
    open(udp);
    expect(error(udp, [3, 4], { content: quoteOf(udp, { optionBytes: 40 }) })).toBe(true);
    expect(error(udp, [3, 4], { content: quoteOf(udp, { payloadBytes: 500 }, 508) })).toBe(true);
  });

  test('an ICMP error about a half-open TCP flow leaves the flow unchanged', () => {
    open(tcp);
    const before = kernel.flowsIn('half_open');
    error(tcp, [3, 3]);
    expect(kernel.flowsIn('half_open')).toEqual(before);
  });
});

describe('ICMP errors that no open flow admits', () => {
  beforeEach(() => open(udp));

  test.each<[string, Packet<number>, Quote]>([
    ['the flow has another port', { ...udp, sourcePort: 40_001 }, {}],
    ['the flow has another protocol', { ...udp, protocol: 136 }, {}],
    ['the error goes to a third host', udp, { to: STRANGER }],
    ['the error goes to the destination of the quoted packet', udp, { to: SERVER }],
    ['the quote ends in the ports', udp, { content: quoteOf(udp).subarray(0, 8 + 20 + 7) }],
    ['the quote ends in the IP header', udp, { content: quoteOf(udp).subarray(0, 8 + 19) }],
    ['the error quotes no packet', udp, { content: new Uint8Array(8) }],
    ['the length of the quoted header is too small', udp, { content: quoteOf(udp, { headerWords: 4 }) }],
    ['the quoted header extends beyond the packet', udp, { content: quoteOf(udp, { headerWords: 15 }) }],
    ['the quote is not IPv4', udp, { content: quoteOf(udp, { version: 6 }) }],
    ['the error quotes a later fragment', udp, { content: quoteOf(udp, { fragment: 1 }) }],
    ['the error is the first fragment of an error', udp, { fragment: MORE_FRAGMENTS, content: quoteOf(udp, {}, 12) }],
  ])('an open flow does not admit an ICMP error that is malformed or does not fit the flow: %s', (_, about, quote) => {
    expect(error(about, [3, 4], quote)).toBe(false);
    expect(kernel.counted()).toMatchObject({ drop_policy_deny: 1 });
  });

  test('an open flow does not admit an ICMP redirect: the datapath drops every redirect', () => {
    expect([0, 1, 2, 3].filter((code) => error(udp, [5, code]))).toEqual([]);
    kernel.activate(compile(onlyFrom(ROUTER)));
    expect([0, 1, 2, 3].filter((code) => error(udp, [5, code]))).toEqual([]);
    expect(kernel.counted()).toMatchObject({ drop_icmp_redirect: 8 });
  });

  test('an open flow does not admit an ICMP error if the policy in force denies the flow', () => {
    kernel.activate(denyAll);
    expect(error(udp, [3, 4])).toBe(false);
    expect(kernel.counted()).toEqual({ allow: 1, half_opened: 1, drop_policy_deny: 1 });
  });

  test('an open flow does not admit an ICMP error that is only the payload of a later fragment, which the datapath does not parse', () => {
    kernel.activate(compile(onlyFrom(ROUTER)));
    const message = icmp(ROUTER, CLIENT, 3, 4);
    const first = { id: 5, fragment: MORE_FRAGMENTS, content: icmpContent(3, 4, new Uint8Array(16)) };
    expect(kernel.runPacket(message, first).returned).toBe(PASSED);
    const looksLike = icmpContent(3, 4, quoteOf(udp));
    expect(kernel.runPacket(message, { id: 5, fragment: 2, content: looksLike }).returned).toBe(PASSED);
    expect(kernel.counted()).toMatchObject({ allow: 3 });
    expect(kernel.counted()).not.toHaveProperty('icmp_related');
  });
});

describe('an echo request from the destination of an echo flow', () => {
  test('an echo request from the destination of an echo flow is classified by the policy, even with the identifier of the flow', () => {
    open(echo);
    expect(kernel.runPacket({ ...back(echo), icmpType: 8 }).returned).toBe(DROPPED);
    expect(kernel.runPacket(back(echo)).returned).toBe(PASSED);
    expect(kernel.runPacket(back(echo), { icmpId: 78 }).returned).toBe(DROPPED);
  });
});

test('the policy classifies ICMP packets without a flow, for every type and code except redirects', () => {
  const kinds = Array.from({ length: 65_536 }, (_, kind) => kind).filter((kind) => kind >> 8 !== 5);
  const passes = (source: number) => (kind: number) =>
    kernel.runPacket(icmp(source, SERVER, kind >> 8, kind & 255), { icmpId: kind }).returned === PASSED;
  expect(kinds.filter(passes(STRANGER))).toEqual([]);
  expect(kinds.filter((kind) => !passes(CLIENT)(kind))).toEqual([]);
});

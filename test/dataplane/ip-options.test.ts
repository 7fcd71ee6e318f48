import { expect, test } from 'vitest';
import { PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { compile } from '#policy/compile/compile.js';
import { allowAll, defaultOnly } from '#test/kernel/policies.js';
import { CLIENT, echo, tcp, udp } from './conversation.js';
import { kernelOfFile } from './kernel-of-file.js';
import { PASSED } from './loaded.js';

const LOOSE = 131;
const STRICT = 137;
const SOURCE_ROUTES = [LOOSE, STRICT];

const kernel = kernelOfFile(allowAll);

function passes(optionText: readonly number[], packet = udp): boolean {
  const optionBytes = Math.max(4, Math.ceil(optionText.length / 4) * 4);
  const padded = Array.from({ length: optionBytes }, (_, index) => optionText[index] ?? 0);
  return kernel.runPacket(packet, { optionBytes, optionText: padded }).returned === PASSED;
}
const option = (kind: number, length: number): number[] => [kind, length, ...new Array<number>(length - 2).fill(0)];

test('a packet with an IP option of any kind and length passes, except with a source route', () => {
  const kinds = Array.from({ length: 256 }, (_, kind) => kind).filter((kind) => kind > 1);
  const lengths = Array.from({ length: 39 }, (_, index) => index + 2);
  const dropped = kinds.filter((kind) => lengths.some((length) => !passes(option(kind, length))));
  expect(dropped).toEqual(SOURCE_ROUTES);
  expect(kinds.filter((kind) => lengths.every((length) => !passes(option(kind, length))))).toEqual(SOURCE_ROUTES);
  expect(Object.keys(kernel.counted()).sort()).toEqual(['allow', 'drop_source_route', 'half_opened']);
});

test('a packet with a source route is dropped, at any position among the IP options', () => {
  for (const kind of SOURCE_ROUTES) {
    for (let before = 0; before <= 33; before++) {
      expect(passes([...new Array<number>(before).fill(1), ...option(kind, 7)])).toBe(false);
    }
    expect(passes([...option(7, 11), ...option(148, 4), ...option(kind, 3)])).toBe(false);
  }
});

test('a packet passes if the bytes of a source route are inside another option, or after the end of the options', () => {
  for (const kind of SOURCE_ROUTES) {
    expect(passes([7, 7, 4, kind, 7, 4, 0, 0])).toBe(true);
    expect(passes([0, kind, 7, 4])).toBe(true);
  }
});

test('the datapath drops a packet as malformed if an option length is 0 or 1, or extends beyond the IPv4 header', () => {
  const lying = [[7], [7, 0], [7, 1], [7, 5], [1, 1, 7, 3], [1, 1, 1, 7], [68, 255], [7, 4, 0, 0, 7, 200]];
  expect(lying.filter((text) => passes(text))).toEqual([]);
  expect(kernel.counted()).toEqual({ drop_malformed: lying.length });
});

test('the datapath does not read bytes of IP options as ports', () => {
  const onlyDns = compile({
    ...defaultOnly('deny'),
    groups: [
      {
        id: 'client',
        pointer: '',
        mode: 'enforce',
        sources: [{ address: CLIENT, length: 32 }],
        selectors: [],
        defaultAction: undefined,
        rules: PORT_PROTOCOLS.map((protocol) => ({
          id: `dns-${protocol}`,
          pointer: '',
          action: 'allow' as const,
          mode: 'enforce' as const,
          destinations: [],
          hostname: undefined,
          protocol,
          sourcePorts: [],
          destinationPorts: [{ low: 53, high: 53 }],
          icmpTypes: [],
          icmpCodes: [],
          tls: undefined,
        })),
      },
    ],
  });
  kernel.activate(onlyDns);
  // An experimental option (kind 158) that contains the bytes of the ports 40000 and 53 several times.
  for (let bytes = 4; bytes <= 40; bytes += 4) {
    const text = [158, bytes, 156, 64, ...Array.from({ length: 9 }, () => [0, 53, 156, 64]).flat()].slice(0, bytes);
    for (const protocol of PORT_PROTOCOLS) {
      expect(passes(text, { ...udp, protocol, destinationPort: 80 })).toBe(false);
      expect(passes(text, { ...udp, protocol, destinationPort: 53 })).toBe(true);
    }
  }
});

test.each([
  ['UDP', udp],
  ['TCP', tcp],
  ['ICMP', echo],
])('the datapath reads the ports behind an IPv4 header of any valid length (protocol: %s)', (_, packet) => {
  for (let optionBytes = 0; optionBytes <= 40; optionBytes += 4) {
    expect(kernel.runPacket(packet, { optionBytes }).returned).toBe(PASSED);
  }
  for (const headerWords of [0, 1, 2, 3, 4])
    expect(kernel.runPacket(packet, { headerWords }).returned).not.toBe(PASSED);
  expect(kernel.flowsIn('half_open')).toMatchObject([{ packets: [11n, 0n] }]);
});

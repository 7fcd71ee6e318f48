import { expect, test } from 'vitest';
import { addressSet, addressText } from '#analysis/answer/address-set.js';
import { flowsOf, portTexts, serviceSet, serviceText } from '#analysis/answer/service-set.js';
import { IPV4 } from '#analysis/engine/address-space.js';
import { KEYS, PORTS } from '#analysis/engine/rule-diagrams.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';

const NET = 0x0a00_0000;
const hosts = (...pairs: readonly (readonly [number, number])[]) =>
  pairs.map(([from, to]) => ({ start: NET + from, end: NET + to }));

test.each([
  ['a span that is not aligned', hosts([3, 9]), '10.0.0.3, 10.0.0.4/30, 10.0.0.8', '6'],
  ['a network without its last address', hosts([0, 255]), '10.0.0.0/24 except 10.0.0.255', '255'],
  ['a network without its first address', hosts([1, 256]), '10.0.0.0/24 except 10.0.0.0', '255'],
  ['a network with a gap', hosts([0, 64], [72, 256]), '10.0.0.0/24 except 10.0.0.64/29', '248'],
  ['two networks, if an exception is as long', hosts([0, 3]), '10.0.0.0/31, 10.0.0.2', '3'],
  ['every address', [{ start: 0, end: 2 ** 32 }], 'any', '4294967296'],
  ['the last address', [{ start: 2 ** 32 - 1, end: 2 ** 32 }], '255.255.255.255', '1'],
  [
    'every other address',
    hosts(...Array.from({ length: 20 }, (_, at) => [2 * at, 2 * at + 1] as const)),
    `${Array.from({ length: 12 }, (_, at) => `10.0.0.${2 * at}`).join(', ')} and 8 more`,
    '20',
  ],
])('the text of %s has the fewest networks', (_set, spans, text, addresses) => {
  const set = addressSet(spans, IPV4);
  expect([addressText(set, IPV4), set.addresses]).toEqual([text, addresses]);
});

const key = (protocol: number, from: number, to = from): [number, number] => [
  portMapKey(protocol, from),
  portMapKey(protocol, to) + 1,
];
const { icmp, tcp, udp } = IPPROTO;

test.each<[text: string, keys: number[], flows: bigint]>([
  ['tcp/22', key(tcp, 22), 65_536n],
  ['udp/8000-8100', key(udp, 8000, 8100), 101n * 65_536n],
  ['tcp', key(tcp, 0, 0xffff), 2n ** 32n],
  ['icmp', key(icmp, 0, 0xffff), 65_536n],
  ['icmp/8', key(icmp, 8 * 256, 8 * 256 + 255), 256n],
  ['icmp/3-4', key(icmp, 3 * 256, 4 * 256 + 255), 512n],
  ['icmp/8.0', key(icmp, 8 * 256), 1n],
  ['icmp/3.1-4.2', key(icmp, 3 * 256 + 1, 4 * 256 + 2), 258n],
  ['proto 47', key(47, 0, 0xffff), 1n],
  ['tcp/1,proto 50-51', [...key(tcp, 1), portMapKey(50, 0), portMapKey(52, 0)], 65_538n],
  ['any', [0, KEYS], 5n * 2n ** 32n + 65_536n + 250n],
  ['proto 0,icmp,proto 2-5,tcp,proto 7-16,udp,proto 18-20', [0, portMapKey(21, 0)], 2n ** 33n + 65_554n],
  ['any except tcp/22', [0, key(tcp, 22)[0], key(tcp, 22)[1], KEYS], 5n * 2n ** 32n + 250n],
])('a set of services has the text %s, and its flows are counted', (text, keys, flows) => {
  expect(serviceText(serviceSet(keys))).toBe(text);
  expect(flowsOf(keys, [0, PORTS])).toBe(flows);
});

test('a set of source ports has texts unless it has every port, and its flows are counted', () => {
  expect(portTexts([0, PORTS])).toEqual([]);
  expect(portTexts([0, 10])).toEqual(['0-9']);
  expect(portTexts([0, 10, 20, 21, 65_535, PORTS])).toEqual(['0-9', '20', '65535']);
  expect(flowsOf(key(tcp, 80, 81), [0, 10, 20, 21])).toBe(22n);
});

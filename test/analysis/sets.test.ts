import { expect, test } from 'vitest';
import { parseCidr } from '#addresses/ip-address.js';
import { addressSet } from '#analysis/answer/address-set.js';
import { flowsOf, portTexts, serviceSet, serviceText } from '#analysis/answer/service-set.js';
import { IPV4, IPV6, spansIn } from '#analysis/engine/address-space.js';
import { KEYS, PORTS } from '#analysis/engine/rule-diagrams.js';
import { addressText } from '#contracts/analysis/address-text.js';
import { type Family, IPPROTO } from '#contracts/policy/policy-model.js';
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
  const set = addressSet([{ space: IPV4, spans }]);
  expect([addressText(set), set.addresses]).toEqual([text, addresses]);
});

test.each([
  ['a network', ['2001:db8::/32'], '2001:db8::/32', 2n ** 96n],
  ['a host', ['2001:0DB8:0:0:0:0:0:1/128'], '2001:db8::1', 1n],
  ['two runs of zeros', ['2001:db8:0:0:1:0:0:0/113'], '2001:db8:0:0:1::/113', 2n ** 15n],
  ['one zero word', ['2001:db8:0:1:1:1:1:1/128'], '2001:db8:0:1:1:1:1:1', 1n],
  ['the last address', ['ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'], 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 1n],
  ['every IPv6 address', ['::/0'], 'any IPv6', 2n ** 128n],
  ['adjacent networks', ['2001:db8::/33', '2001:db8:8000::/33'], '2001:db8::/32', 2n ** 96n],
  ['a prefix of 32 bits and a host of IPv4', ['fd00::/32', '10.0.0.0/32'], '10.0.0.0, fd00::/32', 2n ** 96n + 1n],
  ['every address of both families', ['::/0', '0.0.0.0/0'], 'any, any IPv6', 2n ** 128n + 2n ** 32n],
])('the text of a set with %s is as in RFC 5952', (_set, networks, text, addresses) => {
  const prefixes = networks.flatMap((network) => parseCidr(network)?.prefix ?? []);
  const set = addressSet([IPV4, IPV6].map((space) => ({ space, spans: spansIn(prefixes, space) })));
  expect([addressText(set), set.addresses]).toEqual([text, addresses.toString()]);
});

test('an IPv6 network without one of its hosts is written with the exception', () => {
  const [whole, hole] = ['2001:db8::/64', '2001:db8::7'].flatMap((text) => {
    const parsed = parseCidr(text);
    return parsed === undefined ? [] : IPV6.spanOf(parsed.prefix);
  });
  if (whole === undefined || hole === undefined) throw new Error('not a network');
  const spans = [
    { start: whole.start, end: hole.start },
    { start: hole.end, end: whole.end },
  ];
  expect(addressText(addressSet([{ space: IPV6, spans }]))).toBe('2001:db8::/64 except 2001:db8::7');
});

const key = (protocol: number, from: number, to = from): [number, number] => [
  portMapKey(protocol, from),
  portMapKey(protocol, to) + 1,
];
const { icmp, icmpv6, tcp, udp } = IPPROTO;

test.each<[text: string, keys: number[], flows: bigint, family?: Family]>([
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
  ['icmpv6/128', key(icmpv6, 128 * 256, 128 * 256 + 255), 256n, 'ipv6'],
  ['icmpv6/1.4', key(icmpv6, 256 + 4), 1n, 'ipv6'],
  ['icmpv6', key(icmpv6, 0, 0xffff), 65_536n, 'ipv6'],
  ['icmpv6', key(icmpv6, 0, 0xffff), 1n],
  ['proto 1', key(icmp, 0, 0xffff), 1n, 'ipv6'],
])('a set of services has the text %s, and its flows are counted', (text, keys, flows, family = 'ipv4') => {
  expect(serviceText(serviceSet(keys, family))).toBe(text);
  expect(flowsOf(keys, [0, PORTS], family)).toBe(flows);
});

test('a set of source ports has texts unless it has every port, and its flows are counted', () => {
  expect(portTexts([0, PORTS])).toEqual([]);
  expect(portTexts([0, 10])).toEqual(['0-9']);
  expect(portTexts([0, 10, 20, 21, 65_535, PORTS])).toEqual(['0-9', '20', '65535']);
  expect(flowsOf(key(tcp, 80, 81), [0, 10, 20, 21], 'ipv4')).toBe(22n);
});

import { expect, test } from 'vitest';
import { KnownNames } from '#dns/grants/known-names.js';
import { name } from './wire/message-bytes.js';

const key = (text: string): string => Buffer.from(name(text)).toString('latin1');

test('`KnownNames` (DNS names with granted addresses) limits the total number of addresses, and first removes the name that was granted least recently', () => {
  const known = new KnownNames(() => {}, 9);
  known.granted(key('a.test'), { addresses: [1, 2, 3], patterns: ['*'], by: 1 }, 1_000, 0);
  known.granted(key('b.test'), { addresses: [4, 5, 6], patterns: ['*'], by: 1 }, 1_000, 0);
  known.granted(key('a.test'), { addresses: [7], patterns: ['*'], by: 1 }, 1_000, 1);
  expect(known.list(2).map(({ hostname, addresses }) => [hostname, addresses])).toEqual([
    ['a.test', [1, 2, 3, 7]],
    ['b.test', [4, 5, 6]],
  ]);
  known.granted(key('a.test'), { addresses: [8], patterns: ['*'], by: 1 }, 1_000, 2);
  expect(known.list(2).map(({ hostname }) => hostname)).toEqual(['a.test']);
});

test('`KnownNames` (DNS names with granted addresses) lists an address of a name until the grant of this address expires', () => {
  const known = new KnownNames(() => {});
  known.granted(key('a.test'), { addresses: [1], patterns: ['*'], by: 1 }, 1_000, 0);
  known.granted(key('a.test'), { addresses: [2], patterns: ['*'], by: 1 }, 3_000, 500);
  known.granted(key('a.test'), { addresses: [2], patterns: ['*'], by: 1 }, 2_000, 600);
  expect([900, 1_500, 3_000].map((now) => known.list(now).map(({ addresses }) => addresses))).toEqual([
    [[1, 2]],
    [[2]],
    [],
  ]);
});

test('`KnownNames` (DNS names with granted addresses) has the addresses of both families of a name, those of IPv4 first', () => {
  const named: unknown[] = [];
  const known = new KnownNames((address) => named.push(address));
  const name = key('a.test');
  known.granted(name, { addresses: [1n << 127n, 1n], patterns: ['*'], by: 1 }, 1_000, 0);
  known.granted(name, { addresses: [0xcb00_7101, 1], patterns: ['*'], by: 1 }, 2_000, 0);
  expect(known.list(0).map(({ addresses }) => addresses)).toEqual([[1, 0xcb00_7101, 1n, 1n << 127n]]);
  expect(named).toEqual([1n << 127n, 1n, 0xcb00_7101, 1]);
  expect([1, 1n, 2n].map((address) => known.grantedUntil(name, [{ address }], 1))).toEqual([2_000, 1_000, 0]);
});

test('`KnownNames.grantedUntil` (the time until which the addresses of a DNS name are granted) ignores grants for earlier policy generations', () => {
  const known = new KnownNames(() => {});
  const name = key('a.test');
  const both = [{ address: 0xcb00_7101 }, { address: 2 }];
  known.granted(name, { addresses: [0xcb00_7101, 2], patterns: ['*'], by: 1 }, 9_000, 0);
  known.granted(name, { addresses: [2], patterns: ['*'], by: 1 }, 12_000, 0);
  expect([known.grantedUntil(name, both, 1), known.grantedUntil(name, both, 2)]).toEqual([9_000, 0]);
  known.granted(name, { addresses: [2], patterns: ['a.test'], by: 2 }, 10_000, 0);
  expect([known.grantedUntil(name, both, 2), known.grantedUntil(name, both.slice(1), 2)]).toEqual([0, 10_000]);
  expect(known.list(0).map(({ addresses }) => addresses)).toEqual([[2, 0xcb00_7101]]);
  expect(known.grantedUntil(key('b.test'), both, 2)).toBe(0);
});

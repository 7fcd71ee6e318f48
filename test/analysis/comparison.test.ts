import { expect, test } from 'vitest';
import { parseCidr } from '#addresses/ip-address.js';
import { type AddressSpace, IPV4, IPV6, mergedSpans } from '#analysis/engine/address-space.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { Random, seedOf } from '#test/seed.js';
import { checkPair } from './check-comparison.js';
import { editedPairs } from './edits.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 250);

type Case = { readonly spaces: readonly AddressSpace[]; readonly families: readonly Family[]; readonly text: string };

const CASES: readonly Case[] = [
  { spaces: [IPV4], families: ['ipv4'], text: 'IPv4 flows' },
  { spaces: [IPV4], families: ['ipv4', 'ipv6'], text: 'IPv4 flows, in policies of both families' },
  { spaces: [IPV6], families: ['ipv6'], text: 'IPv6 flows' },
  { spaces: [IPV6], families: ['ipv4', 'ipv6'], text: 'IPv6 flows, in policies of both families' },
  { spaces: [IPV4, IPV6], families: ['ipv4', 'ipv6'], text: 'flows of both families' },
  { spaces: [IPV4, IPV6], families: ['ipv4'], text: 'flows of both families, in policies of IPv4' },
];

test.each(CASES)(
  'each change that the comparison of two policies states is confirmed by a walk over both policies, and no change is missed: $text',
  ({ spaces, families }) => {
    const seed = seedOf(1);
    const found = { packets: 0, inside: 0, changes: 0 };
    for (const { pair, random, before, after } of editedPairs(seed, PAIRS, { families })) {
      try {
        const checked = checkPair(random, before, after, 100, { spaces });
        found.packets += checked.packets;
        found.inside += checked.inside;
        found.changes += checked.changes;
      } catch (error) {
        throw new Error(`pair ${pair} of seed ${seed}: ${String(error)}`, { cause: error });
      }
    }
    expect(found.inside).toBeGreaterThan(PAIRS);
  },
);

test.each([IPV4, IPV6])(
  'the networks of a span of $family are its addresses, and the network around it is the smallest',
  (space) => {
    const random = new Random(seedOf(3));
    const last = (1n << BigInt(space.bits)) - 1n;
    const point = () => {
      const word = (BigInt(random.word()) << 96n) | (BigInt(random.word()) << 64n) | BigInt(random.word());
      return BigInt.asUintN(space.bits, random.chance(0.5) ? word : word >> BigInt(random.below(90))) & last;
    };
    for (let count = 0; count < 500; count++) {
      const [one, other] = [point(), random.chance(0.2) ? last : point()];
      const [start, end] = one < other ? [one, other + 1n] : [other, one + 1n];
      const as = (bound: bigint) => (space === IPV4 ? Number(bound) : bound);
      const spans = space.networksOf({ start: as(start), end: as(end) }).map((text) => {
        const parsed = parseCidr(text);
        expect(parsed?.hostBits).toBe(false);
        return space.spanOf(parsed?.prefix ?? { address: 0, length: 0 });
      });
      expect(mergedSpans(spans)).toEqual([{ start: as(start), end: as(end) }]);
      const around = space.networkAround({ start: as(start), end: as(end) });
      const size = BigInt(around.end) - BigInt(around.start);
      expect(around.start <= start && end <= around.end && BigInt(around.start) % size === 0n).toBe(true);
      const half = BigInt(around.start) + size / 2n;
      if (size > 1n) expect(start < half && half < end).toBe(true);
    }
  },
);

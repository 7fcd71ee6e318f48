import { describe, expect, test } from 'vitest';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { homeOf } from '#dataplane/grants/address-hash.js';
import { GRANT_LAYOUTS, LINE, linesFor, MAX_PATTERNS_OF_ADDRESS, regionsFor } from '#dataplane/grants/grant-layout.js';
import { Ledger } from '#dataplane/grants/grant-ledger.js';
import type { IsDead } from '#dataplane/grants/grant-sets.js';
import { GrantTable } from '#dataplane/grants/grant-table.js';
import { Random, seedOf } from '#test/seed.js';

const CAPACITY = 200;
const never = (): boolean => false;

const FACTORS = Uint32Array.of(
  ...[0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1],
  ...[0xd3a2_646c, 0xfd70_46c5, 0xb55a_4f09, 0x7feb_352d, 0x846c_a68b],
);

describe.each(['ipv4', 'ipv6'] as const)('grant table of %s', (family) => {
  const { places, probes } = GRANT_LAYOUTS[family];
  /** Returns the address with this number; those of IPv6 differ in their lowest word alone. */
  const at = (number: number): Address => addressOf(family, number);

  function memory(capacity = CAPACITY): Uint32Array {
    return new Uint32Array(linesFor(capacity, family) * LINE.words);
  }

  function table(words: Uint32Array, isDead: IsDead = never, ledger = new Ledger(CAPACITY)): GrantTable {
    return GrantTable.recover(words, CAPACITY, FACTORS, isDead, ledger, family);
  }

  function entriesOf(tried: GrantTable): string[] {
    return [...tried.entries()]
      .map(({ address, pattern, expiry }) => `${numberOf(address)} ${pattern} ${expiry}`)
      .sort();
  }

  test.each([
    ['an arbitrary value', 0x85eb_ca77],
    ['nearly a third of 2^32', 0x5555_5556],
    ['nearly a half of 2^32', 0x8000_0003],
    ['nearly zero', 7],
  ])(
    'the DNS grant table (addresses learned for hostname patterns) accepts as many consecutive addresses as its capacity, with a hash multiplier of %s',
    (_, high) => {
      const capacity = 30_000;
      const factors = FACTORS.with(1, high);
      const tried = GrantTable.recover(memory(capacity), capacity, factors, never, undefined, family);
      const first = 0x0a00_0000;
      const refused = Array.from({ length: capacity }, (_, index) => tried.add(at(first + index), 1, 10, never)).filter(
        (granted) => !granted,
      );
      expect(refused).toEqual([]);
    },
  );

  test('the DNS grant table has the same contents as a map of addresses to patterns, after random changes and restarts', () => {
    const seed = seedOf(90_210);
    let adds = 0;
    let refusals = 0;
    for (let number = 0; number < 20; number++) {
      const random = new Random(seed + number);
      const words = memory();
      const model = new Map<string, number>();
      let tried = table(words);
      for (let step = 0; step < 3_000; step++) {
        const address = random.between(1, 150);
        const pattern = random.below(14);
        if (random.chance(0.7)) {
          const expiry = random.between(1, 1_000);
          const key = `${address} ${pattern}`;
          adds++;
          if (!tried.add(at(address), pattern, expiry, never)) {
            refusals++;
            continue;
          }
          model.set(key, Math.max(expiry, model.get(key) ?? 0));
        } else if (random.chance(0.9)) {
          tried.prune(at(address), (found) => found === pattern);
          model.delete(`${address} ${pattern}`);
        } else {
          const limit = random.below(300);
          tried.sweep(tried.lines, (_, expiry) => expiry <= limit);
          for (const [key, expiry] of model) if (expiry <= limit) model.delete(key);
        }
        if (random.chance(0.05)) tried.afterGrace();
        if (random.chance(0.01)) tried = table(words);
      }
      expect(entriesOf(tried)).toEqual([...model].map(([key, expiry]) => `${key} ${expiry}`).sort());
      expect(tried.count).toBe(new Set([...model.keys()].map((key) => key.split(' ')[0])).size);
    }
    // The table reuses a removed entry only after a grace period, so a small part of the additions is refused
    // for lack of a free entry.
    expect(refusals).toBeLessThan(adds / 10);
    console.log(`table: ${adds} grants, ${refusals} refused, seed ${seed}`);
  });

  test('the DNS grant table (addresses learned for hostname patterns) refuses addresses beyond its capacity, and accepts another address after a removal', () => {
    const tried = table(memory());
    const addresses = Array.from({ length: CAPACITY + 1 }, (_, index) => index + 1);
    const added = addresses.filter((address) => tried.add(at(address), 1, 9, never));
    expect(added).toEqual(addresses.slice(0, CAPACITY));
    tried.prune(at(1), () => true);
    expect(tried.add(at(CAPACITY + 1), 1, 9, never)).toBe(true);
    expect([tried.count, tried.add(at(1), 1, 9, never)]).toEqual([CAPACITY, false]);
  });

  test('the DNS grant table (addresses learned for hostname patterns) with several patterns reserves a sixteenth of its capacity for patterns with few addresses, also after a restart', () => {
    const words = memory();
    const shared = (): GrantTable => {
      const ledger = new Ledger(CAPACITY);
      ledger.isShared = true;
      return table(words, never, ledger);
    };
    let tried = shared();
    const added = (from: number, pattern: number): number => {
      let count = 0;
      while (tried.add(at(from + count), pattern, pattern, never)) count++;
      return count;
    };
    const reserve = Math.floor(CAPACITY / 16);
    expect(added(1, 1)).toBe(CAPACITY - reserve);
    // Pattern 1 has reached its limit. The table still prolongs a grant of pattern 1, and grants an address
    // of pattern 1 to pattern 2.
    expect([tried.add(at(1), 1, 50, never), tried.add(at(1), 2, 50, never)]).toEqual([true, true]);
    tried = shared();
    expect(added(1_000, 1)).toBe(0);
    expect(added(1_000, 2)).toBe(reserve);
    tried.sweep(tried.lines, (pattern) => pattern === 1);
    tried.afterGrace();
    expect(added(2_000, 1)).toBe(CAPACITY - 2 * reserve - 1);
  });

  test('the DNS grant table (addresses learned for hostname patterns) grants one address to at most MAX_PATTERNS_OF_ADDRESS patterns, and can still prolong these grants', () => {
    const tried = table(memory());
    for (let pattern = 0; pattern < MAX_PATTERNS_OF_ADDRESS; pattern++) {
      expect(tried.add(at(5), pattern, 9, never)).toBe(true);
    }
    expect(tried.add(at(5), MAX_PATTERNS_OF_ADDRESS, 9, never)).toBe(false);
    expect(tried.add(at(5), 3, 12, never)).toBe(true);
    expect(entriesOf(tried)).toHaveLength(MAX_PATTERNS_OF_ADDRESS);
    expect(entriesOf(tried)).toContain('5 3 12');
  });

  test('the DNS grant table (addresses learned for hostname patterns) replaces an expired grant when the same address is granted for another pattern', () => {
    const tried = table(memory());
    tried.add(at(5), 1, 3, never);
    tried.add(at(5), 2, 9, (_, expiry) => expiry <= 4);
    expect(entriesOf(tried)).toEqual(['5 2 9']);
  });

  test('the DNS grant table (addresses learned for hostname patterns) does not reuse a removed entry before the RCU grace period is over', () => {
    const tried = table(memory());
    for (let address = 1; address <= CAPACITY; address++) tried.add(at(address), 1, 9, never);
    tried.sweep(tried.lines, () => true);
    expect([tried.count, tried.resting]).toEqual([0, CAPACITY]);
    tried.afterGrace();
    expect([tried.count, tried.resting]).toEqual([0, 0]);
  });

  test('the DNS grant table (addresses learned for hostname patterns) restores all grants and its overflow counter from memory in which an interrupted change left a wrong counter', () => {
    const words = memory();
    const tried = table(words);
    for (let address = 1; address <= CAPACITY; address++) tried.add(at(address), address % 7, 9, never);
    const before = entriesOf(tried);
    const spilled = LINE.words;
    words[spilled] = (words[spilled] ?? 0) + 3;
    expect(entriesOf(table(words))).toEqual(before);
    expect(words[spilled]).toBeLessThan(probes * places);
    expect(entriesOf(table(words, (pattern) => pattern !== 2))).toEqual(
      before.filter((entry) => entry.endsWith(' 2 9')),
    );
  });
});

/** Returns the number of an address of `addressOf`. */
function numberOf(address: Address): number {
  return Number(BigInt.asUintN(32, BigInt(address)));
}

function addressOf(family: Family, number: number): Address {
  return family === 'ipv4' ? number : (0x2001_0db8_0000_0001n << 64n) | BigInt(number);
}

test('a random factor for each word gives addresses that differ in any one word different lines of the grant table of IPv6', () => {
  const capacity = 30_000;
  const words = new Uint32Array(linesFor(capacity, 'ipv6') * LINE.words);
  GrantTable.recover(words, capacity, FACTORS, never, undefined, 'ipv6');
  for (const shift of [0n, 32n, 64n, 96n]) {
    const homes = Array.from({ length: 1_000 }, (_, number) =>
      homeOf(words, (0x2001_0db8n << 96n) ^ (BigInt(number + 1) << shift)),
    );
    // A thousand random lines among 37,500 are on average on 987 different lines.
    expect(new Set(homes).size).toBeGreaterThan(950);
    expect(Math.max(...homes)).toBeLessThanOrEqual(regionsFor(capacity, 'ipv6').homes);
  }
});

test('a table in which a killed process has stored a part of an IPv6 address, or a removed one, is repaired', () => {
  const words = new Uint32Array(linesFor(CAPACITY, 'ipv6') * LINE.words);
  const make = (): GrantTable => GrantTable.recover(words, CAPACITY, FACTORS, never, undefined, 'ipv6');
  const [kept, removed] = [addressOf('ipv6', 1), addressOf('ipv6', 2)];
  const first = make();
  first.add(kept, 1, 9, never);
  first.add(removed, 1, 9, never);
  first.prune(removed, () => true);
  const half = LINE.words + GRANT_LAYOUTS.ipv6.line.addresses;
  const places = Array.from(
    { length: 2 * regionsFor(CAPACITY, 'ipv6').homes },
    (_, place) => half + (place >> 1) * LINE.words + (place & 1) * 4,
  );
  const free = places.find((at) => words.subarray(at, at + 4).every((word) => word === 0)) ?? 0;
  words[free] = 7;
  const second = make();
  expect([...second.entries()]).toEqual([{ address: kept, pattern: 1, expiry: 9 }]);
  expect(places.filter((at) => words.subarray(at, at + 4).some((word) => word !== 0))).toHaveLength(1);
});

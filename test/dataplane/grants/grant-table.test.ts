import { describe, expect, test } from 'vitest';
import { LINE, linesFor, MAX_PATTERNS_OF_ADDRESS, PROBES } from '#dataplane/grants/grant-layout.js';
import { Ledger } from '#dataplane/grants/grant-ledger.js';
import type { IsDead } from '#dataplane/grants/grant-sets.js';
import { GrantTable } from '#dataplane/grants/grant-table.js';
import { Random, seedOf } from '#test/seed.js';

const CAPACITY = 200;
const never = (): boolean => false;

function memory(capacity = CAPACITY): Uint32Array {
  return new Uint32Array(linesFor(capacity) * LINE.words);
}

function table(words: Uint32Array, isDead: IsDead = never, ledger = new Ledger(CAPACITY)): GrantTable {
  const factors = Uint32Array.of(0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f);
  return GrantTable.recover(words, CAPACITY, factors, isDead, ledger);
}

function entriesOf(tried: GrantTable): string[] {
  return [...tried.entries()].map(({ address, pattern, expiry }) => `${address} ${pattern} ${expiry}`).sort();
}

describe('grant table', () => {
  test.each([
    ['an arbitrary value', 0x85eb_ca77],
    ['nearly a third of 2^32', 0x5555_5556],
    ['nearly a half of 2^32', 0x8000_0003],
    ['nearly zero', 7],
  ])(
    'the DNS grant table (addresses learned for hostname patterns) accepts as many consecutive addresses as its capacity, with a hash multiplier of %s',
    (_, high) => {
      const capacity = 30_000;
      const factors = Uint32Array.of(0x9e37_79b1, high, 0xc2b2_ae3d, 0x27d4_eb2f);
      const tried = GrantTable.recover(memory(capacity), capacity, factors, never);
      const first = 0x0a00_0000;
      const refused = Array.from({ length: capacity }, (_, at) => tried.add(first + at, 1, 10, never)).filter(
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
          if (!tried.add(address, pattern, expiry, never)) {
            refusals++;
            continue;
          }
          model.set(key, Math.max(expiry, model.get(key) ?? 0));
        } else if (random.chance(0.9)) {
          tried.prune(address, (found) => found === pattern);
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
    const added = addresses.filter((address) => tried.add(address, 1, 9, never));
    expect(added).toEqual(addresses.slice(0, CAPACITY));
    tried.prune(1, () => true);
    expect(tried.add(CAPACITY + 1, 1, 9, never)).toBe(true);
    expect([tried.count, tried.add(1, 1, 9, never)]).toEqual([CAPACITY, false]);
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
      while (tried.add(from + count, pattern, pattern, never)) count++;
      return count;
    };
    const reserve = Math.floor(CAPACITY / 16);
    expect(added(1, 1)).toBe(CAPACITY - reserve);
    // Pattern 1 has reached its limit. The table still prolongs a grant of pattern 1, and grants an address
    // of pattern 1 to pattern 2.
    expect([tried.add(1, 1, 50, never), tried.add(1, 2, 50, never)]).toEqual([true, true]);
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
      expect(tried.add(5, pattern, 9, never)).toBe(true);
    }
    expect(tried.add(5, MAX_PATTERNS_OF_ADDRESS, 9, never)).toBe(false);
    expect(tried.add(5, 3, 12, never)).toBe(true);
    expect(entriesOf(tried)).toHaveLength(MAX_PATTERNS_OF_ADDRESS);
    expect(entriesOf(tried)).toContain('5 3 12');
  });

  test('the DNS grant table (addresses learned for hostname patterns) replaces an expired grant when the same address is granted for another pattern', () => {
    const tried = table(memory());
    tried.add(5, 1, 3, never);
    tried.add(5, 2, 9, (_, expiry) => expiry <= 4);
    expect(entriesOf(tried)).toEqual(['5 2 9']);
  });

  test('the DNS grant table (addresses learned for hostname patterns) does not reuse a removed entry before the RCU grace period is over', () => {
    const tried = table(memory());
    for (let address = 1; address <= CAPACITY; address++) tried.add(address, 1, 9, never);
    tried.sweep(tried.lines, () => true);
    expect([tried.count, tried.resting]).toEqual([0, CAPACITY]);
    tried.afterGrace();
    expect([tried.count, tried.resting]).toEqual([0, 0]);
  });

  test('the DNS grant table (addresses learned for hostname patterns) restores all grants and its overflow counter from memory in which an interrupted change left a wrong counter', () => {
    const words = memory();
    const tried = table(words);
    for (let address = 1; address <= CAPACITY; address++) tried.add(address, address % 7, 9, never);
    const before = entriesOf(tried);
    const spilled = LINE.words;
    words[spilled] = (words[spilled] ?? 0) + 3;
    expect(entriesOf(table(words))).toEqual(before);
    expect(words[spilled]).toBeLessThan(PROBES * 5);
    expect(entriesOf(table(words, (pattern) => pattern !== 2))).toEqual(
      before.filter((entry) => entry.endsWith(' 2 9')),
    );
  });
});

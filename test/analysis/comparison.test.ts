import { expect, test } from 'vitest';
import { Random, seedOf } from '#test/seed.js';
import { checkPair } from './check-comparison.js';
import { edited, randomPolicy } from './edits.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 250);

test('each change that the comparison of two policies states is confirmed by a walk over both policies, and no change is missed', () => {
  const seed = seedOf(1);
  const found = { packets: 0, inside: 0, changes: 0 };
  for (let pair = 0; pair < PAIRS; pair++) {
    const random = new Random(seed * 1_000_003 + pair);
    const before = randomPolicy(random);
    const after = edited(random, before);
    try {
      const checked = checkPair(random, before, after, 100);
      found.packets += checked.packets;
      found.inside += checked.inside;
      found.changes += checked.changes;
    } catch (error) {
      throw new Error(`pair ${pair} of seed ${seed}: ${String(error)}`, { cause: error });
    }
  }
  expect(found.inside).toBeGreaterThan(PAIRS);
});

import { expect, test } from 'vitest';
import { PATTERN } from '#dataplane/grants/grant-layout.js';
import { PatternIndex } from '#dataplane/grants/pattern-index.js';
import { Random, seedOf } from '#test/seed.js';

const NUMBERS = 48;

test('finds what is there and nothing else, also where many digests begin alike', () => {
  const seed = seedOf(88);
  for (let round = 0; round < 200; round++) {
    const random = new Random(seed + round);
    const words = new Uint32Array(NUMBERS * PATTERN.words);
    const index = new PatternIndex(new Uint32Array(64), words);
    // First words around the end of the places, so that ways go round.
    const digestOf = (number: number): Uint32Array =>
      Uint32Array.of(random.chance(0.5) ? 60 + (number % 8) : number % 5, number, round, 1, 2, 3);
    const digests = Array.from({ length: NUMBERS }, (_, number) => digestOf(number));
    for (const [number, digest] of digests.entries()) words.set(digest, number * PATTERN.words + PATTERN.digest);
    const there = new Set<number>();
    for (let step = 0; step < 300; step++) {
      const number = random.below(NUMBERS);
      if (there.has(number)) index.remove(number);
      else index.add(number);
      if (!there.delete(number)) there.add(number);
      if (step % 25 !== 0) continue;
      const found = digests.map((digest) => index.find(digest));
      expect(found).toEqual(digests.map((_, each) => (there.has(each) ? each : undefined)));
    }
    index.remove(NUMBERS - 1);
    index.remove(NUMBERS - 1);
  }
});

import { expect, test } from 'vitest';
import { ExpiringMap } from '#dns/expiring-map.js';
import { Random } from '#test/seed.js';

test.each([
  ['numbers', (key: number) => key],
  ['strings', (key: number) => `\u0003n${key % 7}\u0000${key}`],
])(
  '`ExpiringMap` and `Map` give equal results for random operations, with %s as keys',
  (_, keyOf: (key: number) => string | number) => {
    const random = new Random(7);
    const map = new ExpiringMap<string | number, number>();
    const model = new Map<string | number, number>();
    for (let step = 0; step < 20_000; step++) {
      // The first 10,000 steps use up to 1,001 keys; the later steps use only 21 keys, so that they often
      // delete a key.
      const key = keyOf(random.between(0, step < 10_000 ? 1_000 : 20));
      if (random.between(0, 1) === 0) {
        map.set(key, step);
        model.set(key, step);
      } else expect(map.delete(key)).toBe(model.delete(key));
      const [oldest] = model.values();
      expect([map.get(key), map.has(key), map.size, map.oldest()]).toEqual([
        model.get(key),
        model.has(key),
        model.size,
        oldest,
      ]);
      if (step % 500 === 0) expect(map.values()).toEqual([...model.values()]);
    }
    map.clear();
    expect([map.size, map.values(), map.get(keyOf(1)), map.oldest()]).toEqual([0, [], undefined, undefined]);
    map.set(keyOf(1), 1);
    expect(map.values()).toEqual([1]);
  },
);

test('`ExpiringMap` does not change the age of a key if the key is set again', () => {
  const map = new ExpiringMap<number, string>();
  map.set(1, 'one');
  map.set(2, 'two');
  map.set(1, 'one again');
  expect(map.oldest()).toBe('one again');
});

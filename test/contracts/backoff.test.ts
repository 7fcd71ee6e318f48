import { expect, test } from 'vitest';
import { backoffMs } from '#contracts/backoff.js';

test('the delay between retries doubles with each failed attempt up to its bound, also after very many attempts', () => {
  const waits = [0, 1, 2, 7, 8, 30, 31, 5_000].map((attempts) => backoffMs(attempts, 200, 30_000));
  expect(waits).toEqual([200, 400, 800, 25_600, 30_000, 30_000, 30_000, 30_000]);
});

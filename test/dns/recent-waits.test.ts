import { expect, test } from 'vitest';
import { RecentWaits } from '#dns/dns-counts.js';

test('`RecentWaits` computes the median and the 99th percentile of only the last 4,096 waits of clients for DNS grants', () => {
  const waits = new RecentWaits();
  expect(waits.summary()).toBe(null);
  waits.add(3);
  expect(waits.summary()).toEqual({ medianMs: 3, p99Ms: 3 });
  for (let ms = 1; ms <= 100; ms++) waits.add(ms);
  expect(waits.summary()).toEqual({ medianMs: 50, p99Ms: 99 });
  for (let count = 0; count < 4_096; count++) waits.add(7);
  expect(waits.summary()).toEqual({ medianMs: 7, p99Ms: 7 });
});

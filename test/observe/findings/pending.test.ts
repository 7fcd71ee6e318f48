import { expect, it } from 'vitest';
import { PendingFindings } from '#observe/findings/store/pending.js';
import { seen } from './seen.js';

it('`PendingFindings` merges equal findings into one finding', () => {
  const pending = new PendingFindings('api', 2);
  for (let at = 0; at < 1_000; at++) pending.add(seen({ firstMs: 1_000 + at, lastMs: 1_000 + at }));
  expect(pending.drain()).toEqual([seen({ lastMs: 1_999, count: 1_000 })]);
  expect(pending.drain()).toEqual([]);
});

it('`PendingFindings` counts findings above the limit of different findings in one finding of type gap', () => {
  const pending = new PendingFindings('api', 2);
  for (let at = 0; at < 10; at++) pending.add(seen({ source: `10.0.0.${at}`, firstMs: at, lastMs: at, count: 3 }));
  const gap = pending.drain().at(-1);
  expect(pending.drain()).toEqual([]);
  expect([gap?.type, gap?.target, gap?.count, gap?.firstMs, gap?.lastMs]).toEqual(['gap', 'api', 24, 2, 9]);
});

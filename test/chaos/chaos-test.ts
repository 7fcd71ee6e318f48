import { expect, test } from 'vitest';
import { runChaos } from './chaos.js';

/** Declares a test that runs the faults of a seed for 20 s. */
export function testChaos(seed: number): void {
  test(`a cluster shows no violation of consistency or enforcement during 20 s of random faults with the seed ${seed}`, async () => {
    const { violations, writes, probes } = await runChaos(seed, 20_000);
    expect(violations).toEqual([]);
    expect(writes.ok).toBeGreaterThan(5);
    expect(probes).toBeGreaterThan(1_000);
  });
}

import { setImmediate, setTimeout } from 'node:timers/promises';
import { expect } from 'vitest';

const DEADLINE_MS = 60_000;

/**
 * Waits until `read` returns a value equal to `wanted`. Throws the difference between the two values after a
 * minute.
 */
export async function settled<T>(read: () => T, wanted: T): Promise<void> {
  const deadline = performance.now() + DEADLINE_MS;
  for (;;) {
    const value = read();
    try {
      expect(value).toEqual(wanted);
      return;
    } catch (difference) {
      if (performance.now() > deadline) throw difference;
    }
    await setImmediate();
  }
}

/** Waits `ms` milliseconds of real time, because the tested code uses the real clock. */
export async function passed(ms: number): Promise<void> {
  const until = performance.now() + ms;
  while (performance.now() < until) await setTimeout(until - performance.now());
}

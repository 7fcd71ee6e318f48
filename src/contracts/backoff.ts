/**
 * Returns the milliseconds to wait after `attempts` failed attempts: `firstMs`, doubled with each attempt,
 * but at most `maxMs`.
 */
export function backoffMs(attempts: number, firstMs: number, maxMs: number): number {
  return Math.min(firstMs * 2 ** Math.min(attempts, 30), maxMs);
}

import { isDeepStrictEqual } from 'node:util';
import { expect } from 'vitest';

/**
 * Expects the same as `expect(found).toEqual(wanted)`, in a fraction of the time if the values are equal. Use
 * it in a loop over thousands of values.
 */
export function expectEqual(found: unknown, wanted: unknown): void {
  if (!isDeepStrictEqual(found, wanted)) expect(found).toEqual(wanted);
}

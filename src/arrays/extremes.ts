/**
 * Returns the largest value; -Infinity if there is none. `Math.max(...values)` passes each value on the
 * stack, and throws a RangeError from about 120,000 values on.
 */
export function largest(values: Iterable<number>): number {
  let found = -Infinity;
  for (const value of values) found = Math.max(found, value);
  return found;
}

/** Returns the smallest value; Infinity if there is none. */
export function smallest(values: Iterable<number>): number {
  let found = Infinity;
  for (const value of values) found = Math.min(found, value);
  return found;
}

/**
 * Appends items to a list. `list.push(...items)` passes each item on the stack, and throws a RangeError from
 * about 120,000 items on.
 */
export function append<T>(list: T[], items: Iterable<T>): void {
  for (const item of items) list.push(item);
}

import type { AddressSpace } from '#analysis/engine/address-space.js';
import { largest } from '#arrays/extremes.js';

/**
 * Returns items of all families in turn: the first of each family, then the second of each, and so on. So a
 * list with a limit has items of both families, although IPv6 networks have many more addresses.
 */
export function inTurn<Item>(
  items: readonly Item[],
  spaces: readonly AddressSpace[],
  spaceOf: (item: Item) => AddressSpace,
): readonly Item[] {
  const lists = spaces.map((space) => items.filter((item) => spaceOf(item) === space));
  const longest = largest(lists.map(({ length }) => length));
  return Array.from({ length: longest }, (_, at) => lists.flatMap((list) => list.slice(at, at + 1))).flat();
}

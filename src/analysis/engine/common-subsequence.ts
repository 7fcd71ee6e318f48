import { i32At, itemAt } from '#arrays/read.js';

/**
 * Finds items that two lists have in common, in the same order in both. Returns pairs of indexes, ascending.
 * Each key occurs in at most one pair. The result is a longest common subsequence if no key occurs twice in
 * a list.
 */
export function commonSubsequence(
  one: readonly string[],
  other: readonly string[],
): readonly (readonly [number, number])[] {
  const places = new Map<string, number>();
  for (let at = other.length - 1; at >= 0; at--) places.set(itemAt(other, at), at);
  const pairs: [number, number][] = [];
  for (const [at, key] of one.entries()) {
    const place = places.get(key);
    if (place === undefined) continue;
    pairs.push([at, place]);
    places.delete(key);
  }
  return longestAscending(pairs);
}

/** Returns a longest subsequence of the pairs in which the second numbers ascend (patience sorting). */
function longestAscending(pairs: readonly [number, number][]): readonly [number, number][] {
  const last: number[] = [];
  const before = new Int32Array(pairs.length).fill(-1);
  for (const [at, [, place]] of pairs.entries()) {
    let low = 0;
    let high = last.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (itemAt(pairs, itemAt(last, middle))[1] < place) low = middle + 1;
      else high = middle;
    }
    if (low > 0) before[at] = itemAt(last, low - 1);
    last[low] = at;
  }
  const found: [number, number][] = [];
  for (let at = last.at(-1) ?? -1; at >= 0; at = i32At(before, at)) found.push(itemAt(pairs, at));
  return found.reverse();
}

import { u32At } from '#arrays/read.js';
import type { Intervals } from '#contracts/policy/interval-map.js';
import type { Range } from '#contracts/policy/policy-model.js';

/**
 * Merges overlapping and adjacent ranges. The result contains the same numbers, is ascending, and has gaps
 * between neighbours.
 */
export function mergedRanges(ranges: readonly Range[]): readonly Range[] {
  if (ranges.length < 2) return ranges;
  const merged: { low: number; high: number }[] = [];
  for (const { low, high } of [...ranges].sort((left, right) => left.low - right.low)) {
    const last = merged.at(-1);
    if (last !== undefined && low <= last.high + 1) last.high = Math.max(last.high, high);
    else merged.push({ low, high });
  }
  return merged;
}

/**
 * Returns the value of the interval that contains `point`. Searches the intervals with indexes `from` … `to`
 * - 1; the first of them must start at or before `point`.
 */
export function valueAt({ starts, values }: Intervals, point: number, from = 0, to = starts.length): number {
  let low = from;
  let high = to;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (u32At(starts, middle) <= point) low = middle;
    else high = middle;
  }
  return u32At(values, low);
}

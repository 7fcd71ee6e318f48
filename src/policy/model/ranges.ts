import type { Range } from '#contracts/policy-model.js';

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

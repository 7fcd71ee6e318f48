import type { Range } from '#contracts/policy-model.js';

/** The same numbers as ascending ranges with gaps between them. */
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

/** Returns the value at a share of sorted values: 0.5 is the median, and 1 the largest. */
export function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

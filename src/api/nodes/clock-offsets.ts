/** The minimum difference of the clocks in milliseconds that is shown. */
const LEAST_MS = 1_000;

/**
 * Returns how far the clock of a node is ahead of the clock of this node, in milliseconds. `time` is the time
 * in a response that has just arrived, and `tookMs` the round trip in milliseconds. The result is wrong by at
 * most half the round trip.
 */
export function aheadMs(time: string, tookMs: number): number {
  return Date.parse(time) - (Date.now() - tookMs / 2);
}

/**
 * Returns for each node how many seconds its clock is ahead of the median of all clocks. Because of the
 * median and whole seconds, all nodes return the same result. `ahead`: for each node, how far its clock is
 * ahead, in milliseconds.
 */
export function clockOffsets(ahead: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const sorted = [...ahead.values()].sort((a, b) => a - b);
  const median = sorted[(sorted.length - 1) >> 1] ?? 0;
  const seconds = (ms: number): number => (Math.abs(ms) > LEAST_MS ? Math.round(ms / 1_000) : 0);
  return new Map([...ahead].map(([node, ms]) => [node, seconds(ms - median)]));
}

/** A smaller difference of the clocks is not shown. */
const LEAST_MS = 1_000;

/**
 * Returns how far the clock of a node is ahead of the clock of this node, in milliseconds. `time` is the time
 * in a response that has just arrived, and `tookMs` the round trip. The error is at most half of it.
 */
export function aheadMs(time: string, tookMs: number): number {
  return Date.parse(time) - (Date.now() - tookMs / 2);
}

/**
 * Returns for each node how many seconds its clock is ahead of the median of all clocks. The median and whole
 * seconds make the result equal at all nodes. `ahead` has milliseconds by node.
 */
export function clockOffsets(ahead: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const sorted = [...ahead.values()].sort((a, b) => a - b);
  const median = sorted[(sorted.length - 1) >> 1] ?? 0;
  const seconds = (ms: number): number => (Math.abs(ms) > LEAST_MS ? Math.round(ms / 1_000) : 0);
  return new Map([...ahead].map(([node, ms]) => [node, seconds(ms - median)]));
}

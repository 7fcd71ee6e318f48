/** Flow slots per set; see `bpf/flow/flow_table.h`. */
const WAYS = 8;

/**
 * Log2 of the number of sets. The table has twice as many slots as `capacity`, so that no flow is refused
 * before the capacity is reached because its set is full.
 */
export function setShift(capacity: number): number {
  return Math.max(0, Math.ceil(Math.log2((2 * capacity) / WAYS)));
}

/** The number of flows that a table of so many slots certainly holds. */
export function capacityOf(lines: number): number {
  return lines / 2;
}

export function flowSets(capacity: number): number {
  return 2 ** setShift(capacity);
}

/** The number of slots of the table for this capacity. */
export function flowLines(capacity: number): number {
  return WAYS * flowSets(capacity);
}

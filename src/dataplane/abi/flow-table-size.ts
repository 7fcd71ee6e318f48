/** Number of flow slots in one set of the flow table; must equal `FLOW_WAYS` of `bpf/weir.h`. */
const WAYS = 8;

/**
 * Returns log2 of the number of sets in the flow table. The table has at least twice as many slots as
 * `capacity`. So a set is rarely full before the table contains `capacity` flows.
 */
export function setShift(capacity: number): number {
  return Math.max(0, Math.ceil(Math.log2((2 * capacity) / WAYS)));
}

/**
 * Returns the number of flows for which a flow table with `lines` slots is sized: half of the slots (see
 * `setShift`).
 */
export function capacityOf(lines: number): number {
  return lines / 2;
}

export function flowSets(capacity: number): number {
  return 2 ** setShift(capacity);
}

/** Returns the number of slots of a flow table with this capacity in flows. */
export function flowSlots(capacity: number): number {
  return WAYS * flowSets(capacity);
}

/** Ways of a set; `bpf/flow/flow_table.h`. */
const WAYS = 8;

/** Log2 of the sets of a table for so many flows: twice their ways, so that none is refused before. */
export function setShift(capacity: number): number {
  return Math.max(0, Math.ceil(Math.log2((2 * capacity) / WAYS)));
}

/** What a table of so many lines surely holds. */
export function capacityOf(lines: number): number {
  return lines / 2;
}

export function flowSets(capacity: number): number {
  return 2 ** setShift(capacity);
}

/** Lines of that table. */
export function flowLines(capacity: number): number {
  return WAYS * flowSets(capacity);
}

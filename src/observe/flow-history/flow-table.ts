import { randomInt } from 'node:crypto';
import { i32At, u8At, u16At, u32At } from '#arrays/read.js';
import { EVER_PASSED, type FlowColumns, FOLDED, FOLDED_BITS } from '#contracts/analysis/seen-flows.js';

/** The types of the columns. The order is that of a stored table. */
const COLUMNS = {
  sources: Uint32Array,
  destinations: Uint32Array,
  services: Uint32Array,
  first: Uint32Array,
  last: Uint32Array,
  passed: Uint32Array,
  denied: Uint32Array,
  nameLists: Uint16Array,
  verdicts: Uint8Array,
} as const satisfies { [Name in keyof FlowColumns]: unknown };
export const COLUMN_NAMES = Object.keys(COLUMNS) as (keyof FlowColumns)[];
export const ROW_BYTES = COLUMN_NAMES.reduce((sum, name) => sum + COLUMNS[name].BYTES_PER_ELEMENT, 0);

/** One source has at most this fraction of the rows, and as many again for its folded flows. */
const SOURCE_SHARE = 1 / 16;
/** A full table removes this fraction of the rows that were last seen longest ago. */
const REMOVED_SHARE = 1 / 8;
const FIRST_ROWS = 4_096;
const NETWORK = ~(2 ** (32 - FOLDED_BITS) - 1);
const MAX_COUNT = 0xffff_ffff;

/** One observation of a flow. `verdict`: a value of `VERDICT_NUMBER`. `times`: 0 updates the time only. */
export type Sighting = {
  source: number;
  destination: number;
  service: number;
  atS: number;
  verdict: number;
  passed: boolean;
  nameList: number;
  times: number;
};

/**
 * Flows by source, destination and service, in a hash table with open addressing. At `maxRows` rows, the rows
 * that were last seen longest ago are removed. While more than half of the rows are flows that never passed,
 * only such rows are removed, so that a flood of denied packets removes no flow that passed. One source has a
 * share of the rows; its further flows are folded.
 */
export class FlowTable {
  columns: FlowColumns;
  count = 0;
  folded = 0;
  /** The last time in seconds of rows that were removed because the table was full; 0 if there are none. */
  removedS = { passed: 0, denied: 0 };
  #capacity: number;
  /** For each slot of the hash table, the number of the row plus 1; 0: the slot is empty. */
  #slots: Int32Array;
  #deniedOnly = 0;
  readonly #exactOf = new Map<number, number>();
  readonly #foldedOf = new Map<number, number>();
  /** Without it, senders could choose addresses and ports that fall into one slot. */
  readonly #seed = randomInt(2 ** 32);

  constructor(readonly maxRows: number) {
    this.#capacity = Math.min(maxRows, FIRST_ROWS);
    this.columns = newColumns(this.#capacity);
    this.#slots = new Int32Array(slotsFor(this.#capacity));
  }

  /** Replaces the content by stored rows, and removes the oldest ones if there are too many. */
  restore(columns: FlowColumns, count: number): void {
    this.#capacity = Math.max(count, Math.min(this.maxRows, FIRST_ROWS));
    this.columns = copied(columns, count, this.#capacity, newColumns);
    this.count = count;
    this.#recount();
    while (this.count > this.maxRows) this.#removeOldest(this.count - this.maxRows);
  }

  /** Records an observation. Returns false if the source has used its share, and the flow is not recorded. */
  record(sighting: Sighting): boolean {
    const { source, destination, service } = sighting;
    const row = this.#find(source, destination, service);
    if (row >= 0) {
      this.#update(row, sighting);
      return true;
    }
    const share = Math.ceil(this.maxRows * SOURCE_SHARE);
    if ((this.#exactOf.get(source) ?? 0) < share) {
      this.#insert(sighting, destination, service);
      return true;
    }
    const network = (destination & NETWORK) >>> 0;
    const protocol = (service & ~0xffff) | FOLDED;
    const folded = this.#find(source, network, protocol >>> 0);
    if (folded >= 0) this.#update(folded, sighting);
    else if ((this.#foldedOf.get(source) ?? 0) < share) this.#insert(sighting, network, protocol >>> 0);
    else return false;
    return true;
  }

  /** Removes the rows that were last seen before a time in seconds. */
  expire(beforeS: number): void {
    this.#remove((row) => u32At(this.columns.last, row) < beforeS);
  }

  /** Returns a copy of the columns, whose buffers other threads can read. */
  shared(): FlowColumns {
    return copied(this.columns, this.count, this.count, sharedColumns);
  }

  #find(source: number, destination: number, service: number): number {
    const { sources, destinations, services } = this.columns;
    const mask = this.#slots.length - 1;
    for (let slot = this.#hash(source, destination, service) & mask; ; slot = (slot + 1) & mask) {
      const row = i32At(this.#slots, slot) - 1;
      if (row < 0) return -1;
      if (
        u32At(destinations, row) === destination &&
        u32At(sources, row) === source &&
        u32At(services, row) === service
      )
        return row;
    }
  }

  #hash(source: number, destination: number, service: number): number {
    let hash = Math.imul(source ^ this.#seed, 0x9e37_79b1);
    hash = Math.imul(hash ^ (hash >>> 15) ^ destination, 0x85eb_ca6b);
    hash = Math.imul(hash ^ (hash >>> 13) ^ service, 0xc2b2_ae35);
    return (hash ^ (hash >>> 16)) >>> 0;
  }

  #update(row: number, { atS, verdict, passed, nameList, times }: Sighting): void {
    const { first, last, verdicts, nameLists } = this.columns;
    const counts = passed ? this.columns.passed : this.columns.denied;
    const before = u8At(verdicts, row);
    if (passed && (before & EVER_PASSED) === 0) this.#deniedOnly--;
    counts[row] = Math.min(MAX_COUNT, u32At(counts, row) + times);
    if (atS < u32At(first, row)) first[row] = atS;
    const ever = (before & EVER_PASSED) | (passed ? EVER_PASSED : 0);
    if (atS >= u32At(last, row)) {
      last[row] = atS;
      verdicts[row] = verdict | ever;
      nameLists[row] = nameList;
    } else verdicts[row] = before | ever;
  }

  #insert(sighting: Sighting, destination: number, service: number): void {
    if (this.count === this.maxRows) this.#removeOldest(1);
    if (this.count === this.#capacity) this.#grow();
    const row = this.count++;
    const { columns } = this;
    columns.sources[row] = sighting.source;
    columns.destinations[row] = destination;
    columns.services[row] = service;
    columns.first[row] = sighting.atS;
    columns.last[row] = sighting.atS;
    // A flow that was open before the record began was seen once.
    columns.passed[row] = sighting.passed ? Math.max(1, sighting.times) : 0;
    columns.denied[row] = sighting.passed ? 0 : sighting.times;
    columns.verdicts[row] = sighting.verdict | (sighting.passed ? EVER_PASSED : 0);
    columns.nameLists[row] = sighting.nameList;
    this.#place(row);
    this.#count(row);
  }

  /** Adds a row to the hash table. */
  #place(row: number): void {
    const { sources, destinations, services } = this.columns;
    const mask = this.#slots.length - 1;
    let slot = this.#hash(u32At(sources, row), u32At(destinations, row), u32At(services, row)) & mask;
    while (i32At(this.#slots, slot) !== 0) slot = (slot + 1) & mask;
    this.#slots[slot] = row + 1;
  }

  #count(row: number): void {
    const { sources, services, verdicts } = this.columns;
    const source = u32At(sources, row);
    const isFolded = u32At(services, row) >= FOLDED;
    const counts = isFolded ? this.#foldedOf : this.#exactOf;
    counts.set(source, (counts.get(source) ?? 0) + 1);
    if (isFolded) this.folded++;
    if ((u8At(verdicts, row) & EVER_PASSED) === 0) this.#deniedOnly++;
  }

  #grow(): void {
    this.#capacity = Math.min(this.maxRows, 2 * this.#capacity);
    this.columns = copied(this.columns, this.count, this.#capacity, newColumns);
    this.#index();
  }

  #removeOldest(atLeast: number): void {
    const { last, verdicts } = this.columns;
    const onlyDenied = this.#deniedOnly > this.count / 2;
    const isCandidate = (row: number): boolean => !onlyDenied || (u8At(verdicts, row) & EVER_PASSED) === 0;
    const times = new Uint32Array(this.count);
    let candidates = 0;
    for (let row = 0; row < this.count; row++) if (isCandidate(row)) times[candidates++] = u32At(last, row);
    const wanted = Math.min(candidates, Math.max(atLeast, Math.ceil(this.maxRows * REMOVED_SHARE)));
    const latest = u32At(times.subarray(0, candidates).sort(), wanted - 1);
    this.#remove((row) => isCandidate(row) && u32At(last, row) <= latest);
    const { passed, denied } = this.removedS;
    this.removedS = { passed: onlyDenied ? passed : Math.max(passed, latest), denied: Math.max(denied, latest) };
  }

  #remove(isRemoved: (row: number) => boolean): void {
    const kept = new Uint32Array(this.count);
    let count = 0;
    for (let row = 0; row < this.count; row++) if (!isRemoved(row)) kept[count++] = row;
    if (count === this.count) return;
    for (const name of COLUMN_NAMES) {
      const column = this.columns[name];
      for (let row = 0; row < count; row++) column[row] = column[u32At(kept, row)] as number;
    }
    this.count = count;
    this.#recount();
  }

  /** Builds the hash table again. */
  #index(): void {
    this.#slots = new Int32Array(slotsFor(this.#capacity));
    for (let row = 0; row < this.count; row++) this.#place(row);
  }

  /** Builds the hash table and the counts again. */
  #recount(): void {
    this.#index();
    this.#exactOf.clear();
    this.#foldedOf.clear();
    this.folded = 0;
    this.#deniedOnly = 0;
    for (let row = 0; row < this.count; row++) this.#count(row);
  }

  /** Changes the lists of names of all rows. */
  renumber(next: (nameList: number) => number): void {
    const { nameLists } = this.columns;
    for (let row = 0; row < this.count; row++) nameLists[row] = next(u16At(nameLists, row));
  }
}

/** At least half of the slots are empty. */
const slotsFor = (rows: number): number => 2 ** Math.ceil(Math.log2(2 * rows));

type MakeColumns = (rows: number) => FlowColumns;

const newColumns: MakeColumns = (rows) => columnsOver((bytes) => new ArrayBuffer(bytes), rows);
const sharedColumns: MakeColumns = (rows) => columnsOver((bytes) => new SharedArrayBuffer(bytes), rows);

/** Returns the columns of `rows` rows over buffers that `buffer` returns, in the order of `COLUMN_NAMES`. */
export function columnsOver(buffer: (bytes: number) => ArrayBufferLike, rows: number): FlowColumns {
  return Object.fromEntries(
    COLUMN_NAMES.map((name) => [
      name,
      new COLUMNS[name](buffer(rows * COLUMNS[name].BYTES_PER_ELEMENT) as ArrayBuffer, 0, rows),
    ]),
  ) as FlowColumns;
}

function copied(columns: FlowColumns, count: number, rows: number, make: MakeColumns): FlowColumns {
  const copy = make(rows);
  for (const name of COLUMN_NAMES) copy[name].set(columns[name].subarray(0, count));
  return copy;
}

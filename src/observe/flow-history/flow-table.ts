import { i32At, itemAt, u8At, u16At, u32At } from '#arrays/read.js';
import { EVER_PASSED, type FlowColumns } from '#contracts/analysis/seen-flows.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { FOLDINGS, type Folding, foldedKey, foldingOf, sharerOf } from './folding.js';
import { KeyHash } from './key-hash.js';

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
const COLUMN_NAMES = Object.keys(COLUMNS) as (keyof FlowColumns)[];
/** The columns with addresses, which have `ADDRESS_WORDS` elements for each row. */
const ADDRESSES: readonly (keyof FlowColumns)[] = ['sources', 'destinations'];

/**
 * The maximum share of rows that one source can use. Its further flows are combined into as many additional
 * rows for each of the foldings.
 */
const SOURCE_SHARE = 1 / 16;
/** A full table removes this fraction of the rows that were last seen longest ago. */
const REMOVED_SHARE = 1 / 8;
const FIRST_ROWS = 4_096;
const MAX_COUNT = 0xffff_ffff;

/** One observation of a flow. */
export type Sighting = {
  /** The words of the source, the words of the destination, and the service. */
  readonly key: Uint32Array;
  atS: number;
  /** A value of `VERDICT_NUMBER`. */
  verdict: number;
  passed: boolean;
  nameList: number;
  /** How often the flow was seen. 0 updates the time only. */
  times: number;
};

/**
 * Flows of one family by source, destination and service, in a hash table with open addressing. At `maxRows`
 * rows, the rows that were last seen longest ago are removed. While more than half of the rows are flows that
 * never passed, only such rows are removed, so that a flood of denied packets removes no flow that passed.
 * One source has a share of the rows; its further flows are folded.
 */
export class FlowTable {
  columns: FlowColumns;
  count = 0;
  folded = 0;
  /**
   * The last time in seconds of flows that are not in the table because it was full, or because an earlier
   * build did not record them; 0 if there are none.
   */
  removedS = { passed: 0, denied: 0 };
  #capacity: number;
  /** For each slot of the hash table, the number of the row plus 1; 0: the slot is empty. */
  #slots: Int32Array;
  #deniedOnly = 0;
  readonly #words: number;
  readonly #hash: KeyHash;
  readonly #foldings: readonly Folding[];
  /** The key of the row that a method looks at. */
  readonly #key: Uint32Array;
  /** For each folding, the number of rows that a source has. */
  readonly #counts: readonly Map<Address, number>[];

  constructor(
    readonly family: Family,
    readonly maxRows: number,
  ) {
    this.#words = ADDRESS_WORDS[family];
    this.#foldings = FOLDINGS[family];
    this.#counts = this.#foldings.map(() => new Map());
    this.#key = new Uint32Array(2 * this.#words + 1);
    this.#hash = new KeyHash(this.#key.length);
    this.#capacity = Math.min(maxRows, FIRST_ROWS);
    this.columns = newColumns(family, this.#capacity);
    this.#slots = new Int32Array(slotsFor(this.#capacity));
  }

  /** Replaces the content by stored rows, and removes the oldest ones if there are too many. */
  restore(columns: FlowColumns, count: number): void {
    this.#capacity = Math.max(count, Math.min(this.maxRows, FIRST_ROWS));
    this.columns = this.#copied(count, this.#capacity, newColumns, columns);
    this.count = count;
    this.#recount();
    while (this.count > this.maxRows) this.#removeOldest(this.count - this.maxRows);
  }

  /** Records an observation. Returns false if the source has used its share, and the flow is not recorded. */
  record(sighting: Sighting): boolean {
    const share = Math.ceil(this.maxRows * SOURCE_SHARE);
    let sharer: Address | undefined;
    for (let number = 0; number < this.#foldings.length; number++) {
      // The first folding keeps the key.
      const key = number === 0 ? sighting.key : foldedKey(sighting.key, itemAt(this.#foldings, number), this.#key);
      const hash = this.#hash.of(key);
      const row = this.#find(key, hash);
      if (row >= 0) {
        this.#update(row, sighting);
        return true;
      }
      sharer ??= sharerOf(sighting.key, this.family);
      if ((itemAt(this.#counts, number).get(sharer) ?? 0) >= share) continue;
      this.#insert(sighting, key, hash);
      this.#count(this.count - 1, number, sharer);
      return true;
    }
    return false;
  }

  /** Removes the rows that were last seen before a time in seconds. */
  expire(beforeS: number): void {
    this.#remove((row) => u32At(this.columns.last, row) < beforeS);
  }

  /** Returns a copy of the columns, whose buffers other threads can read. */
  shared(): FlowColumns {
    return this.#copied(this.count, this.count, sharedColumns);
  }

  /** Returns the row with a key; -1 if there is none. */
  #find(key: Uint32Array, hash: number): number {
    const mask = this.#slots.length - 1;
    for (let slot = this.#slotOf(hash); ; slot = (slot + 1) & mask) {
      const row = i32At(this.#slots, slot) - 1;
      if (row < 0 || this.#has(row, key)) return row;
    }
  }

  /** Returns the upper bits of a hash. */
  #slotOf(hash: number): number {
    return hash >>> (Math.clz32(this.#slots.length) + 1);
  }

  #has(row: number, key: Uint32Array): boolean {
    const { sources, destinations, services } = this.columns;
    const words = this.#words;
    if (u32At(services, row) !== u32At(key, 2 * words)) return false;
    for (let word = 0; word < words; word++) {
      const at = row * words + word;
      if (u32At(destinations, at) !== u32At(key, words + word) || u32At(sources, at) !== u32At(key, word)) return false;
    }
    return true;
  }

  /** Returns the key of a row. It is valid until the next call. */
  #keyOf(row: number): Uint32Array {
    const { sources, destinations, services } = this.columns;
    const words = this.#words;
    const key = this.#key;
    for (let word = 0; word < words; word++) {
      key[word] = u32At(sources, row * words + word);
      key[words + word] = u32At(destinations, row * words + word);
    }
    key[2 * words] = u32At(services, row);
    return key;
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

  #insert(sighting: Sighting, given: Uint32Array, hash: number): void {
    // Removing rows and growing write to `#key`.
    const key = this.count === this.#capacity ? given.slice() : given;
    if (this.count === this.maxRows) this.#removeOldest(1);
    if (this.count === this.#capacity) this.#grow();
    const row = this.count++;
    const { columns } = this;
    const words = this.#words;
    for (let word = 0; word < words; word++) {
      columns.sources[row * words + word] = u32At(key, word);
      columns.destinations[row * words + word] = u32At(key, words + word);
    }
    columns.services[row] = u32At(key, 2 * words);
    columns.first[row] = sighting.atS;
    columns.last[row] = sighting.atS;
    // A flow that was open before the record began was seen once.
    columns.passed[row] = sighting.passed ? Math.max(1, sighting.times) : 0;
    columns.denied[row] = sighting.passed ? 0 : sighting.times;
    columns.verdicts[row] = sighting.verdict | (sighting.passed ? EVER_PASSED : 0);
    columns.nameLists[row] = sighting.nameList;
    this.#place(row, hash);
  }

  /** Adds a row to the hash table. */
  #place(row: number, hash: number): void {
    const mask = this.#slots.length - 1;
    let slot = this.#slotOf(hash);
    while (i32At(this.#slots, slot) !== 0) slot = (slot + 1) & mask;
    this.#slots[slot] = row + 1;
  }

  /** Counts a new row. `folding`: the number of its folding. */
  #count(row: number, folding: number, sharer: Address): void {
    const counts = itemAt(this.#counts, folding);
    counts.set(sharer, (counts.get(sharer) ?? 0) + 1);
    if (folding > 0) this.folded++;
    if ((u8At(this.columns.verdicts, row) & EVER_PASSED) === 0) this.#deniedOnly++;
  }

  #grow(): void {
    this.#capacity = Math.min(this.maxRows, 2 * this.#capacity);
    this.columns = this.#copied(this.count, this.#capacity, newColumns);
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
      const each = elementsOf(name, this.family);
      for (let row = 0; row < count; row++)
        for (let word = 0; word < each; word++)
          column[row * each + word] = column[u32At(kept, row) * each + word] as number;
    }
    this.count = count;
    this.#recount();
  }

  /** Builds the hash table again. */
  #index(): void {
    this.#slots = new Int32Array(slotsFor(this.#capacity));
    for (let row = 0; row < this.count; row++) this.#place(row, this.#hash.of(this.#keyOf(row)));
  }

  /** Builds the hash table and the counts again. */
  #recount(): void {
    this.#index();
    for (const counts of this.#counts) counts.clear();
    this.folded = 0;
    this.#deniedOnly = 0;
    for (let row = 0; row < this.count; row++) {
      const folding = foldingOf(u32At(this.columns.services, row), this.family);
      this.#count(row, folding, sharerOf(this.#keyOf(row), this.family));
    }
  }

  /** Changes the lists of names of all rows. */
  renumber(next: (nameList: number) => number): void {
    const { nameLists } = this.columns;
    for (let row = 0; row < this.count; row++) nameLists[row] = next(u16At(nameLists, row));
  }

  /** Returns a copy of the first `count` rows in columns of `rows` rows. */
  #copied(count: number, rows: number, make: MakeColumns, columns = this.columns): FlowColumns {
    const copy = make(this.family, rows);
    for (const name of COLUMN_NAMES) copy[name].set(columns[name].subarray(0, count * elementsOf(name, this.family)));
    return copy;
  }
}

/** At least half of the slots are empty. */
const slotsFor = (rows: number): number => 2 ** Math.ceil(Math.log2(2 * rows));

/** The number of elements that a column has for each row. */
const elementsOf = (name: keyof FlowColumns, family: Family): number =>
  ADDRESSES.includes(name) ? ADDRESS_WORDS[family] : 1;

type MakeColumns = (family: Family, rows: number) => FlowColumns;

const newColumns: MakeColumns = (family, rows) => columnsOver((bytes) => new ArrayBuffer(bytes), family, rows);
const sharedColumns: MakeColumns = (family, rows) => columnsOver((bytes) => new SharedArrayBuffer(bytes), family, rows);

/** Returns the columns of `rows` rows over buffers that `buffer` returns, in the order of a stored table. */
export function columnsOver(buffer: (bytes: number) => ArrayBufferLike, family: Family, rows: number): FlowColumns {
  return Object.fromEntries(
    COLUMN_NAMES.map((name) => {
      const elements = rows * elementsOf(name, family);
      return [name, new COLUMNS[name](buffer(elements * COLUMNS[name].BYTES_PER_ELEMENT) as ArrayBuffer, 0, elements)];
    }),
  ) as FlowColumns;
}

/** Returns the bytes of the first `count` rows, in the order of a stored table. They are copies. */
export function bytesOfRows(columns: FlowColumns, family: Family, count: number): Uint8Array[] {
  return COLUMN_NAMES.map((name) => {
    const rows = columns[name].slice(0, count * elementsOf(name, family));
    return new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength);
  });
}

/** The number of bytes of a row of a family in a stored table. */
export const rowBytes = (family: Family): number =>
  COLUMN_NAMES.reduce((sum, name) => sum + COLUMNS[name].BYTES_PER_ELEMENT * elementsOf(name, family), 0);

import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { i32At, u32At } from '#arrays/read.js';
import type { Budget, CompileTable } from '#policy/model/budget.js';

const SLOTS = 256;

/** Equal sequences of numbers are stored once. They are numbered in the order of first appearance. */
export class Sequences {
  readonly cells = new GrowingUint32Array();
  /** Sequence `n` consists of `cells[offsets[n]]` … `cells[offsets[n + 1] - 1]`. */
  readonly offsets = new GrowingUint32Array();
  private readonly hashes = new GrowingUint32Array();
  private slots = new Int32Array(SLOTS).fill(-1);

  /**
   * The compile budget counts a new sequence as entries of `table`. One table entry consists of `width`
   * numbers.
   */
  constructor(
    private readonly budget: Budget,
    private readonly table: CompileTable,
    private readonly width: number,
  ) {
    this.offsets.push(0);
  }

  get count(): number {
    return this.offsets.length - 1;
  }

  start(sequence: number): number {
    return u32At(this.offsets.array, sequence);
  }

  end(sequence: number): number {
    return u32At(this.offsets.array, sequence + 1);
  }

  /**
   * Returns the number of the sequence `source[from]` … `source[to - 1]`; undefined if the sequence is not
   * stored.
   */
  find(source: Uint32Array, from: number, to: number): number | undefined {
    const found = i32At(this.slots, this.slotOf(hashOf(source, from, to), source, from, to));
    return found < 0 ? undefined : found;
  }

  /**
   * Returns the number of the sequence `source[from]` … `source[to - 1]`. Stores the sequence if it is new.
   */
  intern(source: Uint32Array, from: number, to: number): number {
    this.budget.steps((to - from) / this.width);
    const hash = hashOf(source, from, to);
    const slot = this.slotOf(hash, source, from, to);
    const found = i32At(this.slots, slot);
    if (found >= 0) return found;
    const added = this.count;
    this.budget.entries(this.table, (to - from) / this.width);
    this.cells.append(source, from, to);
    this.offsets.push(this.cells.length);
    this.hashes.push(hash);
    this.slots[slot] = added;
    if (this.count * 2 > this.slots.length) this.rehash();
    return added;
  }

  /** Returns a copy. The budget of the copy does not count the sequences that are already stored. */
  copy(budget: Budget): Sequences {
    const copied = new Sequences(budget, this.table, this.width);
    copied.cells.append(this.cells.array, 0, this.cells.length);
    copied.offsets.append(this.offsets.array, 1, this.offsets.length);
    copied.hashes.append(this.hashes.array, 0, this.hashes.length);
    copied.slots = this.slots.slice();
    return copied;
  }

  clear(): void {
    if (this.count === 0) return;
    if (this.slots.length > SLOTS) this.slots = new Int32Array(SLOTS);
    this.slots.fill(-1);
    this.cells.length = 0;
    this.offsets.length = 1;
    this.hashes.length = 0;
  }

  /** Returns the hash-table slot of the sequence, or the free slot where the sequence belongs. */
  private slotOf(hash: number, source: Uint32Array, from: number, to: number): number {
    const mask = this.slots.length - 1;
    for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const found = i32At(this.slots, slot);
      if (found < 0) return slot;
      if (this.hashes.array[found] === hash && this.equals(found, source, from, to)) return slot;
    }
  }

  private equals(sequence: number, source: Uint32Array, from: number, to: number): boolean {
    const start = this.start(sequence);
    if (this.end(sequence) - start !== to - from) return false;
    const own = this.cells.array;
    for (let index = from, at = start; index < to; index++, at++) if (own[at] !== source[index]) return false;
    return true;
  }

  private rehash(): void {
    const slots = new Int32Array(this.slots.length * 4).fill(-1);
    const mask = slots.length - 1;
    for (let sequence = 0; sequence < this.count; sequence++) {
      let slot = u32At(this.hashes.array, sequence) & mask;
      while (i32At(slots, slot) >= 0) slot = (slot + 1) & mask;
      slots[slot] = sequence;
    }
    this.slots = slots;
  }
}

/** The MurmurHash3 hash of 32-bit numbers. */
function hashOf(source: Uint32Array, from: number, to: number): number {
  let hash = to - from;
  for (let index = from; index < to; index++) {
    let word = Math.imul(u32At(source, index), 0xcc9e2d51);
    word = Math.imul((word << 15) | (word >>> 17), 0x1b873593);
    hash ^= word;
    hash = (Math.imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64) | 0;
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

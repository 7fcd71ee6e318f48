import { u32At } from '#arrays/read.js';
import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';

export const UNSET = 0xffff_ffff;
const HALF_WORDS = LINE_WORDS / 2;
/**
 * Number of cache lines that are initialized in advance, because one large `fill` is faster than many small
 * ones.
 */
const AHEAD = 1_024;

/** A growing array of 32-bit words, extended by whole cache lines of 64 bytes. */
export class Lines {
  /**
   * The array is replaced when it grows, so a caller must read this property again after each call that may
   * add lines.
   */
  words: Uint32Array<ArrayBuffer>;
  count = 0;
  private ready = 0;
  private openHalf: number | undefined;

  constructor() {
    this.words = new Uint32Array(AHEAD * LINE_WORDS);
  }

  /** Removes all cache lines, and allocates memory for `expected` lines. */
  clear(expected: number): void {
    if (expected * LINE_WORDS > this.words.length) this.words = new Uint32Array(expected * LINE_WORDS);
    this.count = 0;
    this.ready = 0;
    this.openHalf = undefined;
  }

  /** Adds adjacent cache lines with all bits set. Returns the index of the first line. */
  add(count: number): number {
    const first = this.count;
    this.count += count;
    if (this.count > this.ready) this.makeReady();
    return first;
  }

  /** Adds eight words. Returns the index of the first word. Two calls can share one cache line. */
  addHalf(): number {
    const open = this.openHalf;
    if (open !== undefined) {
      this.openHalf = undefined;
      return open;
    }
    const first = this.add(1) * LINE_WORDS;
    this.openHalf = first + HALF_WORDS;
    return first;
  }

  set(line: number, word: number, value: number): void {
    this.words[line * LINE_WORDS + word] = value;
  }

  get(line: number, word: number): number {
    return u32At(this.words, line * LINE_WORDS + word);
  }

  toWords(): Uint32Array<ArrayBuffer> {
    return this.words.subarray(0, this.count * LINE_WORDS);
  }

  private makeReady(): void {
    const from = this.ready * LINE_WORDS;
    this.ready = this.count + AHEAD;
    const need = this.ready * LINE_WORDS;
    if (need > this.words.length) {
      const grown = new Uint32Array(Math.max(this.words.length * 2, need));
      grown.set(this.words.subarray(0, from));
      this.words = grown;
    }
    this.words.fill(UNSET, from, need);
  }
}

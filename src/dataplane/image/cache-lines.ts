import { LINE_WORDS } from '#contracts/datapath-numbers.js';

const UNSET = 0xffff_ffff;
const HALF_WORDS = LINE_WORDS / 2;
/** Lines are initialized in steps of this size. */
const AHEAD = 1_024;

/** A growing array of 32-bit words, extended by cache lines of 64 bytes. */
export class Lines {
  /** Replaced when lines are added: never keep a reference over a call that may add lines. */
  words: Uint32Array<ArrayBuffer>;
  count = 0;
  private ready = 0;
  private openHalf: number | undefined;

  constructor() {
    this.words = new Uint32Array(AHEAD * LINE_WORDS);
  }

  /** Removes all lines and makes room for `expected` lines; the array still grows on demand. */
  clear(expected: number): void {
    if (expected * LINE_WORDS > this.words.length) this.words = new Uint32Array(expected * LINE_WORDS);
    this.count = 0;
    this.ready = 0;
    this.openHalf = undefined;
  }

  /** Adds `count` adjacent lines with every word `0xffffffff`. Returns the index of the first line. */
  add(count: number): number {
    const first = this.count;
    this.count += count;
    if (this.count > this.ready) this.makeReady();
    return first;
  }

  /** Adds half a line. Returns the index of its first word, which is word 0 or word 8 of its line. */
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
    return this.words[line * LINE_WORDS + word] as number;
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

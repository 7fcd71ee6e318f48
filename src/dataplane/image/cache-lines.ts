import { LINE_WORDS } from '#contracts/datapath-numbers.js';

const UNSET = 0xffff_ffff;
const HALF_WORDS = LINE_WORDS / 2;
/** Lines are made ready so many at a time. */
const AHEAD = 1_024;

/** Words that grow, a line at a time. */
export class Lines {
  /** Replaced when lines are added: never keep it over a call that may add some. */
  words: Uint32Array<ArrayBuffer>;
  count = 0;
  private ready = 0;
  private openHalf: number | undefined;

  constructor() {
    this.words = new Uint32Array(AHEAD * LINE_WORDS);
  }

  /** Takes all lines away and makes room for `expected`; more are added as they are needed. */
  clear(expected: number): void {
    if (expected * LINE_WORDS > this.words.length) this.words = new Uint32Array(expected * LINE_WORDS);
    this.count = 0;
    this.ready = 0;
    this.openHalf = undefined;
  }

  /** Adds `count` lines in a row, every word `0xffffffff`, and answers the index of the first. */
  add(count: number): number {
    const first = this.count;
    this.count += count;
    if (this.count > this.ready) this.makeReady();
    return first;
  }

  /** Adds half a line, and answers its first word: of its line that is word 0 or word 8. */
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

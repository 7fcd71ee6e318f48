import { LINE_WORDS } from './numbers.js';

const UNSET = 0xffff_ffff;

/** Words that grow, a line at a time. */
export class Lines {
  #words: Uint32Array<ArrayBuffer>;
  #count = 0;
  #openHalf: number | undefined;

  /** Room for `expected` lines; more are added as they are needed. */
  constructor(expected = 1024) {
    this.#words = new Uint32Array(expected * LINE_WORDS).fill(UNSET);
  }

  get count(): number {
    return this.#count;
  }

  /** Adds `count` lines in a row, every word `0xffffffff`, and answers the index of the first. */
  add(count: number): number {
    const first = this.#count;
    this.#count += count;
    if (this.#count * LINE_WORDS > this.#words.length) {
      const grown = new Uint32Array(Math.max(this.#words.length * 2, this.#count * LINE_WORDS));
      grown.fill(UNSET, this.#words.length);
      grown.set(this.#words);
      this.#words = grown;
    }
    return first;
  }

  /** Half a line: 0 for its first eight words, 1 for the others. */
  addHalf(): { readonly line: number; readonly half: 0 | 1 } {
    const open = this.#openHalf;
    if (open !== undefined) {
      this.#openHalf = undefined;
      return { line: open, half: 1 };
    }
    const line = this.add(1);
    this.#openHalf = line;
    return { line, half: 0 };
  }

  set(line: number, word: number, value: number): void {
    this.#words[line * LINE_WORDS + word] = value;
  }

  get(line: number, word: number): number {
    return this.#words[line * LINE_WORDS + word] ?? 0;
  }

  toWords(): Uint32Array<ArrayBuffer> {
    return this.#words.subarray(0, this.#count * LINE_WORDS);
  }
}

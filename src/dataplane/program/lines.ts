import { LINE_WORDS } from './numbers.js';

/** Words that grow, a line at a time. */
export class Lines {
  #words = new Uint32Array(1024 * LINE_WORDS);
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Adds `count` lines in a row, every word `0xffffffff`, and answers the index of the first. */
  add(count: number): number {
    const first = this.#count;
    this.#count += count;
    if (this.#count * LINE_WORDS > this.#words.length) {
      const grown = new Uint32Array(Math.max(this.#words.length * 2, this.#count * LINE_WORDS));
      grown.set(this.#words.subarray(0, first * LINE_WORDS));
      this.#words = grown;
    }
    this.#words.fill(0xffff_ffff, first * LINE_WORDS, this.#count * LINE_WORDS);
    return first;
  }

  set(line: number, word: number, value: number): void {
    this.#words[line * LINE_WORDS + word] = value;
  }

  get(line: number, word: number): number {
    return this.#words[line * LINE_WORDS + word] ?? 0;
  }

  toWords(): Uint32Array<ArrayBuffer> {
    return this.#words.slice(0, this.#count * LINE_WORDS);
  }
}

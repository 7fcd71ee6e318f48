import { PATTERN } from './grant-layout.js';

/** Words of a digest. */
const DIGEST = PATTERN.digestBytes / 4;

/** Finds the numbers of patterns by their digests, which stand in `words` under the numbers. */
export class PatternIndex {
  readonly #places: Uint32Array;
  readonly #mask: number;
  readonly #words: Uint32Array;

  /** `places`: a power of two, and more than there are patterns; zeroes at first. */
  constructor(places: Uint32Array, words: Uint32Array) {
    this.#places = places;
    this.#mask = places.length - 1;
    this.#words = words;
  }

  find(digest: Uint32Array): number | undefined {
    for (let place = (digest[0] ?? 0) & this.#mask; ; place = (place + 1) & this.#mask) {
      const found = this.#places[place] ?? 0;
      if (found === 0) return undefined;
      if (this.isOf(found - 1, digest)) return found - 1;
    }
  }

  isOf(number: number, digest: Uint32Array): boolean {
    const at = number * PATTERN.words + PATTERN.digest;
    for (let word = 0; word < DIGEST; word++) if (this.#words[at + word] !== digest[word]) return false;
    return true;
  }

  /** Its digest is there. */
  add(number: number): void {
    let place = this.#homeOf(number);
    while (this.#places[place] !== 0) place = (place + 1) & this.#mask;
    this.#places[place] = number + 1;
  }

  /** Its digest is still there. */
  remove(number: number): void {
    let hole = this.#homeOf(number);
    while (this.#places[hole] !== number + 1) {
      if (this.#places[hole] === 0) return;
      hole = (hole + 1) & this.#mask;
    }
    // What stands behind the hole and may stand in it moves there, so that nobody's way ends too early.
    for (let place = (hole + 1) & this.#mask; this.#places[place] !== 0; place = (place + 1) & this.#mask) {
      const home = this.#homeOf((this.#places[place] ?? 0) - 1);
      if (((place - home) & this.#mask) < ((place - hole) & this.#mask)) continue;
      this.#places[hole] = this.#places[place] ?? 0;
      hole = place;
    }
    this.#places[hole] = 0;
  }

  #homeOf(number: number): number {
    return (this.#words[number * PATTERN.words + PATTERN.digest] ?? 0) & this.#mask;
  }
}

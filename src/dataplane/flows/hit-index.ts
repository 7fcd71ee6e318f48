import { HIT_BYTES, HIT_OFFSETS } from '#dataplane/abi/hit.js';

const WORDS = HIT_BYTES / 4;
const LOW = HIT_OFFSETS.identity / 4;

/** Finds the entry of an identity, and free entries. Built once from the map `hits`. */
export class HitIndex {
  /** Hash table of entries of `hits` by the low word of their identity; 0: empty. */
  readonly #table: Uint32Array;
  readonly #mask: number;
  /** The entry where the search for a free one continues. */
  #next = 1;
  #count = 0;

  constructor(
    readonly words: Uint32Array,
    readonly capacity: number,
  ) {
    const size = 2 ** Math.ceil(Math.log2(2 * capacity));
    this.#table = new Uint32Array(size);
    this.#mask = size - 1;
    for (let entry = 1; entry < capacity; entry++) {
      const low = words[entry * WORDS + LOW] as number;
      if (low !== 0) this.add(entry, low);
    }
  }

  get count(): number {
    return this.#count;
  }

  /** 0 if the identity has no entry. */
  find(low: number, high: number): number {
    for (let at = low & this.#mask; ; at = (at + 1) & this.#mask) {
      const entry = this.#table[at] as number;
      if (entry === 0) return 0;
      const word = entry * WORDS + LOW;
      if (this.words[word] === low && this.words[word + 1] === high) return entry;
    }
  }

  add(entry: number, low: number): void {
    let at = low & this.#mask;
    while (this.#table[at] !== 0) at = (at + 1) & this.#mask;
    this.#table[at] = entry;
    this.#count++;
  }

  free(): number {
    for (; this.#next < this.capacity; this.#next++) {
      if (this.words[this.#next * WORDS + LOW] === 0) return this.#next;
    }
    throw new Error('the entries of hits are all taken, though there was room');
  }
}

import { u32At } from '#arrays/read.js';
import { HIT_BYTES, HIT_OFFSETS } from '#dataplane/abi/hit.js';

const WORDS = HIT_BYTES / 4;
const LOW = HIT_OFFSETS.identity / 4;

/**
 * Finds the entry of the map `hits` that counts the packets of a rule or default, by its 64-bit identity, and
 * finds free entries. The constructor reads the whole map once.
 */
export class HitIndex {
  /**
   * Hash table of indexes of `hits`, hashed by the low 32 bits of the rule's identity; 0 marks an empty
   * element.
   */
  readonly #table: Uint32Array;
  readonly #mask: number;
  /** The index in the map `hits` at which the search for a free entry continues. */
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
      const low = u32At(words, entry * WORDS + LOW);
      if (low !== 0) this.add(entry, low);
    }
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Returns the index of the entry of `hits` for the rule or default with this identity; 0 if it has no
   * entry. `low` and `high` are the halves of the 64-bit identity.
   */
  find(low: number, high: number): number {
    for (let at = low & this.#mask; ; at = (at + 1) & this.#mask) {
      const entry = u32At(this.#table, at);
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

  /**
   * Returns the index of the next free entry of `hits`. It stays free until the caller stores the identity of
   * a rule in it. Throws if no entry is free.
   */
  nextFree(): number {
    for (; this.#next < this.capacity; this.#next++) {
      if (this.words[this.#next * WORDS + LOW] === 0) return this.#next;
    }
    throw new Error('find a free entry of the BPF map `hits`: all entries are in use');
  }
}

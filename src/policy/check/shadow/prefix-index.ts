import { foldedWord, mask } from '#addresses/ip-address.js';
import { i32At, itemAt } from '#arrays/read.js';
import type { Address, Prefix } from '#contracts/policy/policy-model.js';

/**
 * A hash index of numbers by prefix and tag. `find` visits the numbers of the given prefix and of all wider
 * prefixes. For each prefix length, it visits the newest numbers first, and at most `VISITS` of them. A hash
 * bucket also contains numbers of other prefixes, so the callback `accept` must check each number.
 */
export class PrefixIndex {
  readonly #heads: Int32Array;
  readonly #next: number[] = [];
  readonly #values: number[] = [];
  readonly #lengths = new Set<number>();

  constructor(expected: number) {
    this.#heads = new Int32Array(2 ** Math.ceil(Math.log2(Math.max(expected, 4) * 2))).fill(-1);
  }

  add(prefix: Prefix, tag: number, value: number): void {
    this.#lengths.add(prefix.length);
    const bucket = this.#bucket(prefix.address, prefix.length, tag);
    this.#next.push(i32At(this.#heads, bucket));
    this.#values.push(value);
    this.#heads[bucket] = this.#values.length - 1;
  }

  /**
   * Returns the first number that `accept` accepts, among those of prefixes that contain `prefix`; undefined
   * if there is none.
   */
  find(prefix: Prefix, tag: number, accept: (value: number) => boolean): number | undefined {
    for (const length of this.#lengths) {
      if (length > prefix.length) continue;
      let at = i32At(this.#heads, this.#bucket(mask(prefix.address, length), length, tag));
      for (let visits = 0; at !== -1 && visits < VISITS; visits++) {
        const value = itemAt(this.#values, at);
        if (accept(value)) return value;
        at = itemAt(this.#next, at);
      }
    }
    return undefined;
  }

  #bucket(address: Address, length: number, tag: number): number {
    let hash = Math.imul(foldedWord(address) ^ Math.imul(length + 1, 0x9e3779b1), 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 13) ^ Math.imul(tag + 1, 0xc2b2ae35), 0x27d4eb2f);
    return (hash ^ (hash >>> 15)) & (this.#heads.length - 1);
  }
}

const VISITS = 32;

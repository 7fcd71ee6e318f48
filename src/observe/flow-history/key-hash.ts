import { randomInt } from 'node:crypto';
import { i32At, u32At } from '#arrays/read.js';

/**
 * The hash of a key of 32-bit words: the sum of its halves of 16 bits, each times a random odd factor. A
 * sender chooses many bits of a key, and does not know the factors: for two keys, the upper 16 bits are equal
 * with a probability of 2^-15 (multiply-shift hashing of Dietzfelbinger et al., 1997).
 */
export class KeyHash {
  readonly #factors: Int32Array;

  constructor(words: number) {
    this.#factors = Int32Array.from({ length: 2 * words }, () => randomInt(2 ** 32) | 1);
  }

  /** Returns a number of 32 bits, whose upper bits are to be used. */
  of(key: Uint32Array): number {
    const factors = this.#factors;
    let sum = 0;
    for (let at = 0; at < key.length; at++) {
      const word = u32At(key, at);
      sum = (sum + Math.imul(i32At(factors, 2 * at), word & 0xffff)) | 0;
      sum = (sum + Math.imul(i32At(factors, 2 * at + 1), word >>> 16)) | 0;
    }
    return sum >>> 0;
  }
}

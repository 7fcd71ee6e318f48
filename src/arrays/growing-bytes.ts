import { u8At } from './read.js';

const FIRST_CAPACITY = 1024;

/**
 * A growing buffer to which bytes are appended. Its memory grows only with the bytes that have arrived,
 * because a peer may announce a large length and then not send the bytes.
 */
export class GrowingBytes {
  #held = new Uint8Array(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get bytes(): Uint8Array {
    return this.view(0, this.#length);
  }

  /**
   * Returns a view of the bytes from index `from` up to index `to`, which is excluded. A later `append` does
   * not change the bytes of the view, except after a call of `clear`.
   */
  view(from: number, to: number): Uint8Array {
    return this.#held.subarray(from, to);
  }

  at(index: number): number {
    return u8At(this.#held, index);
  }

  append(chunk: Uint8Array): void {
    const length = this.#length + chunk.length;
    if (length > this.#held.length) {
      const grown = new Uint8Array(Math.max(FIRST_CAPACITY, length, 2 * this.#held.length));
      grown.set(this.bytes);
      this.#held = grown;
    }
    this.#held.set(chunk, this.#length);
    this.#length = length;
  }

  clear(): void {
    this.#length = 0;
  }
}

const FIRST_CAPACITY = 1024;

/** Bytes that are added at the end: room is made for what came, not for what was announced. */
export class GrowingBytes {
  #held = new Uint8Array(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get bytes(): Uint8Array {
    return this.view(0, this.#length);
  }

  /** It is not changed by what is added later, but by what is added after `clear`. */
  view(from: number, to: number): Uint8Array {
    return this.#held.subarray(from, to);
  }

  at(index: number): number {
    return this.#held[index] as number;
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

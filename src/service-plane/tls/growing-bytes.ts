const FIRST_CAPACITY = 1024;

/** An append-only buffer. It allocates by the bytes that have arrived, not by an announced length. */
export class GrowingBytes {
  #held = new Uint8Array(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get bytes(): Uint8Array {
    return this.view(0, this.#length);
  }

  /** A later append does not change the view; an append after `clear` does. */
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

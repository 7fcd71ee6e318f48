/**
 * Memory that BPF programs read, as 32-bit words and as 64-bit words ("longs"). BPF programs see the stores
 * in the order of the code, because `Atomics.store` orders them.
 */
export class SharedMemory {
  readonly #longs: BigUint64Array;

  constructor(readonly words: Uint32Array) {
    this.#longs = new BigUint64Array(words.buffer, words.byteOffset, words.length >>> 1);
  }

  word(at: number): number {
    return this.words[at] ?? 0;
  }

  storeWord(at: number, value: number): void {
    Atomics.store(this.words, at, value);
  }

  low(long: number): number {
    return this.words[2 * long] ?? 0;
  }

  high(long: number): number {
    return this.words[2 * long + 1] ?? 0;
  }

  isZero(long: number): boolean {
    return this.low(long) === 0 && this.high(long) === 0;
  }

  /**
   * Stores both halves of a 64-bit word by one atomic store, so that a BPF program never reads an old half
   * with a new half.
   */
  storeLong(long: number, low: number, high: number): void {
    Atomics.store(this.#longs, long, (BigInt(high) << 32n) | BigInt(low));
  }
}

/**
 * Generates pseudo-random numbers (mulberry32). Equal seeds give equal numbers, so that equal policies have
 * equal proof samples.
 */
export class ProofRandom {
  #state = 0;

  begin(seed: number): void {
    this.#state = seed | 0;
  }

  /** Returns a random integer from 0 to 2³² − 1. */
  word(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** Returns a random integer from 0 to `bound` − 1. */
  below(bound: number): number {
    return Math.floor((this.word() / 2 ** 32) * bound);
  }

  flip(): boolean {
    return this.word() >= 2 ** 31;
  }

  /** Returns `low`, `high` or a random number between them. */
  within(low: number, high: number): number {
    const which = this.below(3);
    return which === 0 ? low : which === 1 ? high : low + this.below(high - low + 1);
  }

  /**
   * Returns `low` − 1 or `high` + 1. If the result is outside 0 … `last`, it wraps around to the other end.
   */
  nextTo(low: number, high: number, last: number): number {
    if (this.flip()) return high >= last ? 0 : high + 1;
    return low === 0 ? last : low - 1;
  }

  pick<T>(values: readonly T[]): T {
    const value = values.length === 1 ? values[0] : values[this.below(values.length)];
    if (value === undefined) throw new RangeError('choose a random element: the list is empty');
    return value;
  }
}

/**
 * A random number generator (mulberry32) that returns the same numbers for the same seed on every machine.
 */
export class Random {
  private state: number;

  constructor(readonly seed: number) {
    this.state = seed >>> 0;
  }

  /** Returns an integer from 0 to 2³² − 1. */
  word(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** Returns an integer from 0 to `bound` − 1. */
  below(bound: number): number {
    return Math.floor((this.word() / 2 ** 32) * bound);
  }

  /** Returns an integer from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  chance(probability: number): boolean {
    return this.word() < probability * 2 ** 32;
  }

  pick<T>(values: readonly T[]): T {
    const value = values[this.below(values.length)];
    if (value === undefined) throw new RangeError('nothing to pick from');
    return value;
  }

  /** Returns between `low` and `high` results of `make`. */
  some<T>(low: number, high: number, make: () => T): T[] {
    return Array.from({ length: this.between(low, high) }, make);
  }
}

/**
 * Returns the seed of a test run: the environment variable `WEIR_SEED`, or `fallback` if the variable is not
 * set.
 */
export function seedOf(fallback: number): number {
  const given = process.env.WEIR_SEED;
  return given === undefined ? fallback : Number(given);
}

/** Random numbers that are equal for equal seeds on every machine (mulberry32). */
export class Random {
  private state: number;

  constructor(readonly seed: number) {
    this.state = seed >>> 0;
  }

  /** 0 … 2³² − 1. */
  word(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** 0 … `bound` − 1. */
  below(bound: number): number {
    return Math.floor((this.word() / 2 ** 32) * bound);
  }

  /** Both ends included. */
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

  /** `low` … `high` values of `make`. */
  some<T>(low: number, high: number, make: () => T): T[] {
    return Array.from({ length: this.between(low, high) }, make);
  }
}

/** The seed of a test run: `WEIR_SEED`, else `fallback`. */
export function seedOf(fallback: number): number {
  const given = process.env.WEIR_SEED;
  return given === undefined ? fallback : Number(given);
}

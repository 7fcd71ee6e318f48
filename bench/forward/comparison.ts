/**
 * Two functions that measure: `plain` without a packet filter, `other` with a packet filter. Each function
 * returns nanoseconds per packet or connection.
 */
type Subject = {
  readonly plain: () => number | Promise<number>;
  readonly other: () => number | Promise<number>;
};

const MIN_ROUNDS = 15;
const MAX_ROUNDS = 40;
const ENOUGH_QUIET = 11;
/**
 * After this time, the measurement ends even with fewer than `ENOUGH_QUIET` undisturbed rounds, if it has at
 * least `MIN_ROUNDS` rounds.
 */
const MAX_WAIT_MS = 3_000;
/** A round is undisturbed if both of its plain runs took at most `QUIET` times `plainNs`. */
const QUIET = 1.2;
const FASTEST = 0.05;

/** Measures the cost of packet filters relative to a plain subject, which has no packet filter. */
export class Comparison {
  readonly #plain: number[] = [];

  constructor(readonly maxRounds = MAX_ROUNDS) {}

  /**
   * Returns the time of `other` divided by the time of `plain`. Runs `plain` and `other` alternately, so that
   * each run of `other` is between two runs of `plain`. The result is the median of the ratios of undisturbed
   * rounds. If too few rounds are undisturbed, all rounds count.
   */
  async cost({ plain, other }: Subject): Promise<number> {
    const rounds: { readonly slowest: number; readonly ratio: number }[] = [];
    let before = await this.#measure(plain);
    let quiet: typeof rounds = [];
    const started = performance.now();
    const isEnough = (): boolean =>
      rounds.length >= MIN_ROUNDS &&
      (quiet.length >= ENOUGH_QUIET || performance.now() - started > MAX_WAIT_MS || rounds.length >= this.maxRounds);
    while (!isEnough()) {
      const measured = await other();
      const after = await this.#measure(plain);
      rounds.push({ slowest: Math.max(before, after), ratio: (2 * measured) / (before + after) });
      before = after;
      const limit = this.plainNs * QUIET;
      quiet = rounds.filter(({ slowest }) => slowest <= limit);
    }
    const counted = quiet.length >= ENOUGH_QUIET / 2 ? quiet : rounds;
    return quantile(
      counted.map(({ ratio }) => ratio),
      0.5,
    );
  }

  /**
   * Nanoseconds per packet or connection of the plain subject without disturbance: the 5 % quantile of all
   * its runs.
   */
  get plainNs(): number {
    return quantile(this.#plain, FASTEST);
  }

  async #measure(plain: Subject['plain']): Promise<number> {
    const ns = await plain();
    this.#plain.push(ns);
    return ns;
  }
}

export function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const found = sorted[Math.floor(part * (sorted.length - 1))];
  if (found === undefined) throw new RangeError('compute a quantile: there are no values');
  return found;
}

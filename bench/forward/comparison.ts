/** Both in nanoseconds a piece. */
type Subject = {
  readonly plain: () => number | Promise<number>;
  readonly other: () => number | Promise<number>;
};

const MIN_ROUNDS = 15;
const MAX_ROUNDS = 40;
const ENOUGH_QUIET = 11;
/** How long to wait for quiet rounds. */
const PATIENCE_MS = 3_000;
/** How far a round may be above the fastest one and still count as undisturbed. */
const QUIET = 1.2;
const FASTEST = 0.05;

/** A plain subject, and others that are compared with it one after the other. */
export class Comparison {
  readonly #plain: number[] = [];

  constructor(readonly maxRounds = MAX_ROUNDS) {}

  /**
   * The time of the other in parts of the plain one's. The two run in turns, so that each run of the other stands
   * between two of the plain one; the median of the ratios counts. Rounds in which the plain one itself was slowed
   * down count only where there are too few others.
   */
  async cost({ plain, other }: Subject): Promise<number> {
    const rounds: { readonly slowest: number; readonly ratio: number }[] = [];
    let before = await this.#measure(plain);
    let quiet: typeof rounds = [];
    const started = performance.now();
    const isEnough = (): boolean =>
      rounds.length >= MIN_ROUNDS &&
      (quiet.length >= ENOUGH_QUIET || performance.now() - started > PATIENCE_MS || rounds.length >= this.maxRounds);
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

  /** The plain one's time where nothing disturbed it. */
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
  if (found === undefined) throw new RangeError('nothing was measured');
  return found;
}

import type { NodeStats } from './stats.js';

/** The length of a step in milliseconds, and the number of steps that are kept: one hour. */
export const STEP_MS = 10_000;
export const STEPS = 360;
/**
 * How many milliseconds a sample may be away from the end of its step. A later sample measures nothing,
 * because its counts belong to two steps.
 */
const TOLERANCE_MS = 1_000;

export type SampledStats = Pick<NodeStats, 'dataplane' | 'dns' | 'servicePlane'>;
type Figure = (stats: SampledStats) => number | bigint | undefined;

/** Counters: a step has the increase of the counter during the step. */
const COUNTERS = {
  allow: ({ dataplane }) => dataplane?.verdicts.allow.packets,
  deny: ({ dataplane }) => dataplane?.verdicts.deny.packets,
  audit: ({ dataplane }) => dataplane?.verdicts.audit.packets,
  flowsOpened: ({ dataplane }) => dataplane?.flowsOpened,
  queriesAllow: ({ dns }) => dns?.queriesAllow,
  queriesDeny: ({ dns }) => dns?.queriesDeny,
  tlsAllow: ({ servicePlane }) => servicePlane?.allow,
  tlsDeny: ({ servicePlane }) => servicePlane?.deny,
  tlsAudit: ({ servicePlane }) => servicePlane?.audit,
  intercepted: ({ servicePlane }) => servicePlane?.intercepted,
  requestsAllow: ({ servicePlane }) => servicePlane?.requestsAllow,
  requestsDeny: ({ servicePlane }) => servicePlane?.requestsDeny,
  requestsAudit: ({ servicePlane }) => servicePlane?.requestsAudit,
} as const satisfies Readonly<Record<string, Figure>>;
/** Gauges: a step has the value at the end of the step. */
const GAUGES = {
  activeFlows: ({ dataplane }) => dataplane?.activeFlows,
  connections: ({ servicePlane }) => servicePlane?.connections,
} as const satisfies Readonly<Record<string, Figure>>;

type SeriesName = keyof typeof COUNTERS | keyof typeof GAUGES;
/** The value of each step, oldest first. Null: the step was not measured, or the part did not run. */
type Series = readonly (number | null)[];
export type StatsSeriesView = {
  /** Unix times in milliseconds: the begin of the oldest step, and the end of the newest. */
  readonly fromMs: number;
  readonly toMs: number;
  readonly series: Readonly<Record<SeriesName, Series>>;
  /** Dropped packets by drop reason: the reasons with a drop in these steps. */
  readonly drops: Readonly<Record<string, Series>>;
};

type Sample = { readonly end: number; readonly atMs: number; readonly counters: ReadonlyMap<string, number> };
type Clock = { readonly wallMs: () => number; readonly monotonicMs: () => number };

/**
 * The counters of the node during the last hour, in steps of 10 s of wall clock time. A step has a value only
 * if the counters were read at its begin and at its end, within a second. It has none if the process did not
 * run, if the machine was suspended, if the clock was changed, or if the counter began again at 0.
 */
export class StatsSeries {
  readonly #read: () => Promise<SampledStats>;
  readonly #clock: Clock;
  readonly #values = new Map<string, Float64Array>();
  /** The end of the newest step that can have values, in steps since 1970. */
  #newest = 0;
  #last: Sample | null = null;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(
    read: () => Promise<SampledStats>,
    clock: Clock = { wallMs: () => Date.now(), monotonicMs: () => performance.now() },
  ) {
    this.#read = read;
    this.#clock = clock;
  }

  /** Reads the counters at the end of each step from now on. */
  start(): void {
    if (this.#isClosed) return;
    const untilMs = STEP_MS - (this.#clock.wallMs() % STEP_MS);
    this.#timer = setTimeout(() => void this.sample().finally(() => this.start()), untilMs).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  /** Reads the counters, and sets the values of the step that ends now. Never rejects. */
  async sample(): Promise<void> {
    const stats = await this.#read().catch(() => null);
    const wallMs = this.#clock.wallMs();
    const end = Math.round(wallMs / STEP_MS);
    const last = this.#last;
    this.#last = null;
    if (stats === null || Math.abs(wallMs - end * STEP_MS) > TOLERANCE_MS) return;
    if (end < this.#newest) this.#values.clear();
    if (end !== this.#newest) this.#forget(this.#newest, end);
    this.#newest = end;
    const sample = { end, atMs: this.#clock.monotonicMs(), counters: countersOf(stats) };
    this.#last = sample;
    for (const [name, figure] of Object.entries<Figure>(GAUGES)) {
      const value = figure(stats);
      if (value !== undefined) this.#set(name, end, Number(value));
    }
    if (last === null || !isStep(last, sample)) return;
    for (const [name, count] of sample.counters) {
      const before = last.counters.get(name);
      if (before !== undefined && count >= before) this.#set(name, end, count - before);
    }
  }

  /** Returns the newest steps that have ended. `steps`: at most `STEPS`. */
  view(steps = STEPS): StatsSeriesView {
    const to = Math.floor(this.#clock.wallMs() / STEP_MS);
    const of = (name: string): Series => Array.from({ length: steps }, (_, at) => this.#get(name, to - steps + 1 + at));
    const names = [...Object.keys(COUNTERS), ...Object.keys(GAUGES)] as SeriesName[];
    const drops = [...this.#values.keys()].filter((name) => name.startsWith(DROPS)).map((name) => [name, of(name)]);
    return {
      fromMs: (to - steps) * STEP_MS,
      toMs: to * STEP_MS,
      series: Object.fromEntries(names.map((name) => [name, of(name)])) as Record<SeriesName, Series>,
      drops: Object.fromEntries(
        (drops as [string, Series][])
          .filter(([, values]) => values.some((value) => value !== null && value > 0))
          .map(([name, values]) => [name.slice(DROPS.length), values]),
      ),
    };
  }

  /**
   * Clears the entries of the ring for the steps that end after `from`, up to `to`. These entries have the
   * values of an hour before.
   */
  #forget(from: number, to: number): void {
    for (const values of this.#values.values())
      for (let end = Math.max(from + 1, to - STEPS + 1); end <= to; end++) values[end % STEPS] = Number.NaN;
  }

  #set(name: string, end: number, value: number): void {
    let values = this.#values.get(name);
    if (values === undefined) {
      values = new Float64Array(STEPS).fill(Number.NaN);
      this.#values.set(name, values);
    }
    values[end % STEPS] = value;
  }

  #get(name: string, end: number): number | null {
    if (end > this.#newest || end <= this.#newest - STEPS) return null;
    const value = this.#values.get(name)?.[end % STEPS] ?? Number.NaN;
    return Number.isNaN(value) ? null : value;
  }
}

const DROPS = 'drops.';

function countersOf(stats: SampledStats): ReadonlyMap<string, number> {
  const counters = new Map<string, number>();
  for (const [name, figure] of Object.entries<Figure>(COUNTERS)) {
    const count = figure(stats);
    if (count !== undefined) counters.set(name, Number(count));
  }
  for (const [reason, { packets }] of Object.entries(stats.dataplane?.drops ?? {}))
    counters.set(`${DROPS}${reason}`, Number(packets));
  return counters;
}

/**
 * Returns whether two samples are the begin and the end of one step. The monotonic clock stands still while
 * the machine is suspended, and does not follow changes of the wall clock.
 */
function isStep(last: Sample, sample: Sample): boolean {
  const tookMs = sample.atMs - last.atMs;
  return sample.end === last.end + 1 && Math.abs(tookMs - STEP_MS) <= 2 * TOLERANCE_MS;
}

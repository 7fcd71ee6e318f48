/**
 * The time of construction on two clocks: the monotonic clock of kernel timestamps (`ns`) and the wall clock
 * (`ms`).
 */
export class Moment {
  readonly ns = process.hrtime.bigint();
  readonly ms = Date.now();

  /** Converts a time in nanoseconds on the monotonic clock to milliseconds since 1970. */
  dateOf(monotonicNs: bigint): number {
    return this.ms - Math.round(Number(this.ns - monotonicNs) / 1e6);
  }
}

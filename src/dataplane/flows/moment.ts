/** One moment, by the monotonic clock that the kernel notes times by, and by the calendar. */
export class Moment {
  readonly ns = process.hrtime.bigint();
  readonly ms = Date.now();

  /** Milliseconds since 1970 of a moment of the monotonic clock. */
  dateOf(monotonicNs: bigint): number {
    return this.ms - Math.round(Number(this.ns - monotonicNs) / 1e6);
  }
}

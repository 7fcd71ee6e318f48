/** One moment, on the monotonic clock of kernel timestamps and on the wall clock. */
export class Moment {
  readonly ns = process.hrtime.bigint();
  readonly ms = Date.now();

  /** Milliseconds since 1970 of a time on the monotonic clock. */
  dateOf(monotonicNs: bigint): number {
    return this.ms - Math.round(Number(this.ns - monotonicNs) / 1e6);
  }
}

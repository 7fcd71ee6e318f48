const KEPT = 4_096;

/** The waiting times, in milliseconds, of the last 4,096 grant requests for which a client had to wait. */
export class RecentWaits {
  readonly #waits = new Float64Array(KEPT);
  #count = 0;

  add(ms: number): void {
    this.#waits[this.#count++ % KEPT] = ms;
  }

  /**
   * Returns the median and the 99th percentile of the waiting times. Returns null before the first call of
   * `add`.
   */
  summary(): { readonly medianMs: number; readonly p99Ms: number } | null {
    const sorted = this.#waits.slice(0, this.#count).sort();
    const at = (part: number): number => sorted[Math.floor(sorted.length * part)] ?? 0;
    return sorted.length === 0 ? null : { medianMs: at(0.5), p99Ms: at(0.99) };
  }
}

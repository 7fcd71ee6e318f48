/** The counters of the DNS proxy; `DnsStats` explains each counter. */
export class Counts {
  queriesAllow = 0;
  queriesDeny = 0;
  nxdomainPolicy = 0;
  nxdomainUpstream = 0;
  servfail = 0;
  grants = 0;
  cacheHits = 0;
  cacheMisses = 0;
  readonly #refused = new Map<string, number>();

  /**
   * Adds `count` to the number of queries, answers or connections that the proxy dropped or refused for
   * `reason`. Callers must pass constants as `reason`: the map never removes a reason.
   */
  refuse(reason: string, count = 1): void {
    this.#refused.set(reason, (this.#refused.get(reason) ?? 0) + count);
  }

  refused(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refused);
  }
}

const KEPT = 4_096;

/** The waiting times, in milliseconds, of the last 4,096 grant requests for which a client had to wait. */
export class RecentWaits {
  readonly #waits = new Float64Array(KEPT);
  #count = 0;

  add(ms: number): void {
    this.#waits[this.#count++ % KEPT] = ms;
  }

  /** Returns null before the first call of `add`. */
  summary(): { readonly medianMs: number; readonly p99Ms: number } | null {
    const sorted = this.#waits.slice(0, this.#count).sort();
    const at = (part: number): number => sorted[Math.floor(sorted.length * part)] ?? 0;
    return sorted.length === 0 ? null : { medianMs: at(0.5), p99Ms: at(0.99) };
  }
}

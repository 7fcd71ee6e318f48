/** What the proxy counts. */
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

  /** Counts what was not answered or not taken. Reasons are words of this code, so there are few. */
  refuse(reason: string, count = 1): void {
    this.#refused.set(reason, (this.#refused.get(reason) ?? 0) + count);
  }

  refused(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refused);
  }
}

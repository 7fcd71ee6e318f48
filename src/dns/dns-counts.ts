/** The counters of the DNS proxy. */
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
   * Counts queries, answers or connections that were dropped or refused. Reasons are constants of this code,
   * so the map stays small.
   */
  refuse(reason: string, count = 1): void {
    this.#refused.set(reason, (this.#refused.get(reason) ?? 0) + count);
  }

  refused(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refused);
  }
}

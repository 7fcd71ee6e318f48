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

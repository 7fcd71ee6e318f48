/** Counters of the DNS proxy since the last `open`. */
export type DnsStats = {
  /**
   * Number of lookups that the policy allowed (`queriesAllow`) or denied (`queriesDeny`). A lookup that the
   * policy denies in audit mode counts in `queriesAllow`.
   */
  readonly queriesAllow: number;
  readonly queriesDeny: number;
  /**
   * Number of responses to clients: NXDOMAIN because of the policy, NXDOMAIN from an upstream, and SERVFAIL.
   */
  readonly nxdomainPolicy: number;
  readonly nxdomainUpstream: number;
  readonly servfail: number;
  /**
   * Number of grants (addresses that match a pattern): one for each pair of address and pattern. Each renewal
   * of a grant counts again. A grant request that the datapath refuses in part does not count.
   */
  readonly grants: number;
  /**
   * The waiting times of the last 4,096 grant requests for which a client had to wait; failed requests count
   * too. Null before the first such request.
   */
  readonly learning: { readonly medianMs: number; readonly p99Ms: number } | null;
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly cacheEntries: number;
  readonly cacheBytes: number;
  /** Number of dropped or refused queries, answers and connections, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  readonly upstreams: readonly UpstreamStats[];
};
/** Numbers are since the start of the DNS proxy. */
export type UpstreamStats = {
  /** The address and port of the upstream. */
  readonly address: string;
  /** False while the upstream does not reply. */
  readonly alive: boolean;
  /** The number of queries sent to the upstream. */
  readonly queries: number;
  /** The number of queries that the upstream did not answer in time. */
  readonly timeouts: number;
  /**
   * Moving average of the upstream's response time in milliseconds. Null before the first response of the
   * upstream.
   */
  readonly latencyMs: number | null;
};

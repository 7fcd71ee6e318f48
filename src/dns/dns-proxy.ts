import type { MessagePort } from 'node:worker_threads';
import type { Lookups } from '#contracts/dns-lookups.js';
import type { KnownName } from '#contracts/known-name.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';

/**
 * The interface of the DNS proxy that the `dnsProxy` actor uses. The proxy runs in a worker thread; no
 * per-query work passes through this interface.
 */
export type DnsProxy = {
  /**
   * Binds every listening address on UDP and TCP. The proxy answers queries with SERVFAIL until the first
   * `use`. Rejects if an address cannot be bound.
   */
  open(): Promise<void>;
  /** From now on, the proxy decides queries by `lookups`, the lookup tables of the program in force. */
  use(lookups: Lookups): void;
  /**
   * Sets the port over which the proxy requests grants from the datapath thread; see `Datapath.grantPort`.
   * With null, lookups that need a grant fail.
   */
  grantBy(port: MessagePort | null): void;
  stats(): Promise<DnsStats>;
  /** Returns the names that have a grant in force, with the granted addresses. */
  names(): Promise<readonly KnownName[]>;
  watch(listener: (change: DnsChange) => void): () => void;
  /**
   * Calls the listener with batches of lookups; equal lookups are merged. Returns a function that removes the
   * listener.
   */
  observe(listener: (seen: SeenLookups) => void): () => void;
  /**
   * Sets whether the proxy reports allowed lookups besides denied lookups. The initial setting is false. The
   * setting survives `close` and `open`.
   */
  setLookupsWanted(wanted: boolean): void;
  /** Closes all sockets of the proxy and ends its thread. */
  close(): Promise<void>;
};

export type DnsChange =
  | { readonly type: 'upstreams_changed'; readonly alive: readonly string[]; readonly dead: readonly string[] }
  | { readonly type: 'worker_died'; readonly reason: string };

/** Counters of the DNS proxy since the last `open`. */
export type DnsStats = {
  /** Number of lookups that the policy allowed (`queriesAllow`) or denied (`queriesDeny`). */
  readonly queriesAllow: number;
  readonly queriesDeny: number;
  /** Number of answers: NXDOMAIN because of the policy, NXDOMAIN from an upstream, and SERVFAIL. */
  readonly nxdomainPolicy: number;
  readonly nxdomainUpstream: number;
  readonly servfail: number;
  /**
   * Number of granted addresses. An address that is granted to several patterns counts once for each pattern.
   */
  readonly grants: number;
  /**
   * How long answers with new addresses waited for their grants, over the last 4,096 such answers. Null
   * before the first such answer.
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
export type UpstreamStats = {
  readonly address: string;
  readonly alive: boolean;
  readonly queries: number;
  readonly timeouts: number;
  /** Moving average of the upstream's response time in milliseconds. Null before its first response. */
  readonly latencyMs: number | null;
};

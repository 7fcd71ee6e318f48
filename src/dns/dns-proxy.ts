import type { MessagePort } from 'node:worker_threads';
import type { Lookups } from '#contracts/dns-lookups.js';
import type { KnownName } from '#contracts/known-name.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';

/**
 * The DNS proxy as the `dnsProxy` actor uses it. The proxy runs in a worker thread; no per-query work passes
 * through this interface.
 */
export type DnsProxy = {
  /**
   * Binds every address on UDP and TCP. Queries get SERVFAIL until `use`. Rejects if an address cannot be
   * bound.
   */
  open(): Promise<void>;
  /** Decides queries by these lookups from now on. */
  use(lookups: Lookups): void;
  /**
   * Sets where addresses are granted; see `Datapath.grantPort`. Null: no address can be granted, and lookups
   * that need a grant fail.
   */
  grantBy(port: MessagePort | null): void;
  stats(): Promise<DnsStats>;
  /** Names that were looked up, and the addresses granted for them. */
  names(): Promise<readonly KnownName[]>;
  watch(listener: (change: DnsChange) => void): () => void;
  /** Calls the listener with lookups, merged and in batches. */
  observe(listener: (seen: SeenLookups) => void): () => void;
  /**
   * Whether allowed lookups are reported too; false at first. The setting survives a reopening of the proxy.
   */
  setLookupsWanted(wanted: boolean): void;
  /** Closes the sockets. */
  close(): Promise<void>;
};

export type DnsChange =
  | { readonly type: 'upstreams_changed'; readonly alive: readonly string[]; readonly dead: readonly string[] }
  | { readonly type: 'worker_died'; readonly reason: string };

/** Counts since the proxy was opened. */
export type DnsStats = {
  /** Lookups that the policy allows, and those that it denies. */
  readonly queriesAllow: number;
  readonly queriesDeny: number;
  /** Answers: names that the policy denied, names that do not exist, and failed lookups. */
  readonly nxdomainPolicy: number;
  readonly nxdomainUpstream: number;
  readonly servfail: number;
  /** Granted addresses, counted once for each pattern. */
  readonly grants: number;
  /**
   * How long the last few thousand answers with new addresses waited for their grants; null before the first.
   */
  readonly learning: { readonly medianMs: number; readonly p99Ms: number } | null;
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly cacheEntries: number;
  readonly cacheBytes: number;
  /** Dropped or refused queries, answers and connections, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  readonly upstreams: readonly UpstreamStats[];
};
export type UpstreamStats = {
  readonly address: string;
  readonly alive: boolean;
  readonly queries: number;
  readonly timeouts: number;
  /** A moving average in milliseconds; null before the first answer. */
  readonly latencyMs: number | null;
};

import type { MessagePort } from 'node:worker_threads';
import type { KnownName } from '#contracts/known-name.js';
import type { Lookups } from '#contracts/lookups.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';

/** What the DNS proxy part asks of the proxy. It runs in a worker thread; nothing that a query does passes through here. */
export type DnsProxy = {
  /** Binds every address, UDP and TCP. Queries are answered SERVFAIL until `use`. Rejects where one cannot be bound. */
  open(): Promise<void>;
  /** Judges queries by these from now on. */
  use(lookups: Lookups): void;
  /** Where addresses are learned; see `Datapath.grantPort`. Null: nothing is learned, and what would be is not answered. */
  grantBy(port: MessagePort | null): void;
  stats(): Promise<DnsStats>;
  /** Names that were looked up, and what is granted for them. */
  names(): Promise<readonly KnownName[]>;
  watch(listener: (change: DnsChange) => void): () => void;
  /** Calls back with what was seen, merged and a few at a time. */
  observe(listener: (seen: SeenLookups) => void): () => void;
  /** Whether lookups that are allowed are told of too; not at first. Holds when the proxy is opened again. */
  setLookupsWanted(wanted: boolean): void;
  /** Lets go of the sockets. */
  close(): Promise<void>;
};

export type DnsChange =
  | { readonly type: 'upstreams_changed'; readonly alive: readonly string[]; readonly dead: readonly string[] }
  | { readonly type: 'worker_died'; readonly reason: string };

/** Since the proxy was opened. */
export type DnsStats = {
  /** Lookups that the policy lets pass, and those that it denies. */
  readonly queriesAllow: number;
  readonly queriesDeny: number;
  /** Answers: names that the policy denied, names that there are not, and lookups that failed. */
  readonly nxdomainPolicy: number;
  readonly nxdomainUpstream: number;
  readonly servfail: number;
  /** Addresses that were granted, once for each pattern. */
  readonly grants: number;
  /** What the last few thousand answers that led to something new waited until that was in force; null before the first. */
  readonly learning: { readonly medianMs: number; readonly p99Ms: number } | null;
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly cacheEntries: number;
  readonly cacheBytes: number;
  /** What was not answered or not taken, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  readonly upstreams: readonly UpstreamStats[];
};
export type UpstreamStats = {
  readonly address: string;
  readonly alive: boolean;
  readonly queries: number;
  readonly timeouts: number;
  /** Of late, in milliseconds; null before the first answer. */
  readonly latencyMs: number | null;
};

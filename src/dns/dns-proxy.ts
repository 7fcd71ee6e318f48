import type { MessagePort } from 'node:worker_threads';
import type { DnsSettings } from '#contracts/config/config-reload.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { KnownName, SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { UnforwardedReason } from '#contracts/policy/explain-facts.js';

/**
 * The interface of the DNS proxy that the `dnsProxy` actor uses. The proxy runs in a worker thread; no
 * per-query work passes through this interface.
 */
export type DnsProxy = {
  /**
   * Listens on every address on UDP and TCP. The proxy answers queries with SERVFAIL until the first `use`.
   * With `awaitsGrants`, and if a socket was open before, queries wait in the sockets until the datapath
   * thread can answer grant requests, for at most 30 seconds. Rejects if an address cannot be bound.
   */
  open(options?: { readonly awaitsGrants?: boolean }): Promise<void>;
  /**
   * Changes the settings of the running proxy; lookups in progress are answered. Rejects and changes nothing
   * if a socket cannot be opened. A proxy that is not open takes the settings at its next `open`.
   */
  change(settings: DnsSettings): Promise<void>;
  /**
   * From now on, the proxy decides queries by `lookups`: tables for DNS names, compiled from the policy in
   * force.
   */
  use(lookups: Lookups): void;
  /**
   * Changes which Kubernetes objects own source addresses (D38a). Resolves when the proxy applies the change
   * to each query. A proxy that is not open applies the change from its next `open` on.
   */
  changeMembers(change: MembershipChange): Promise<void>;
  /**
   * Replaces all members (addresses that Kubernetes objects own). Before the first call, no source gets an
   * allow rule by a selector.
   */
  replaceMembers(list: MemberList): Promise<void>;
  /**
   * Sets the `MessagePort` over which the proxy requests grants from the datapath thread; see
   * `Datapath.grantPort`. With null, lookups that need a grant fail.
   */
  setGrantPort(port: MessagePort | null): void;
  stats(): Promise<DnsStats>;
  /** Returns the names that have a grant in force, with the granted addresses. */
  names(): Promise<readonly KnownName[]>;
  /**
   * Returns why the proxy answers a query for `name` itself; null if it forwards the query
   * (`UnforwardedNames.reasonFor`).
   */
  unforwardedReason(name: string): UnforwardedReason | null;
  watch(listener: (change: DnsChange) => void): () => void;
  /**
   * Calls the listener with batches of the lookups that the proxy decided; equal lookups are merged. Returns
   * a function that removes the listener.
   */
  observe(listener: (seen: SeenLookups) => void): () => void;
  /**
   * Sets whether `observe` reports allowed lookups besides denied lookups. The initial setting is false. The
   * setting survives `close` and `open`.
   */
  setLookupsWanted(wanted: boolean): void;
  /** Closes all sockets of the proxy and ends its thread. */
  close(): Promise<void>;
};

export type DnsChange =
  | { readonly type: 'upstreams_changed'; readonly alive: readonly string[]; readonly dead: readonly string[] }
  | { readonly type: 'worker_died'; readonly reason: string };

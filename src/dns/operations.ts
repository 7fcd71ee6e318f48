import { NEVER, Observable, share } from 'rxjs';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { KnownName, SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import type { DnsProxy } from './dns-proxy.js';

/** Access to the names that the DNS proxy resolved, to its DNS lookups and to its statistics. */
export type NodeLookups = {
  /** Returns the statistics of the DNS proxy; null while the proxy is not open. */
  stats(): Promise<DnsStats | null>;
  names(): Promise<readonly KnownName[] | Refusal>;
  /**
   * Emits the DNS lookups that the proxy decides, and never completes. Allowed lookups are included only
   * after `setWanted(true)`.
   */
  readonly seen: Observable<SeenLookups>;
  setWanted(wanted: boolean): void;
};

const ABSENT = refusal('feature_unavailable', 'the configuration has no dns section: this node has no DNS proxy');
const NOT_RUNNING = refusal('feature_unavailable', 'the DNS proxy of this node is not running; see /ready');

/**
 * Creates access to a DNS proxy; `proxy` is null on a node without a DNS proxy. `isServing` returns whether
 * the proxy is open.
 */
export function lookupsOver(proxy: DnsProxy | null, isServing: () => boolean): NodeLookups {
  return {
    stats: async () => (proxy !== null && isServing() ? proxy.stats() : null),
    names: async () => (proxy === null ? ABSENT : isServing() ? proxy.names() : NOT_RUNNING),
    setWanted: (wanted) => proxy?.setLookupsWanted(wanted),
    seen:
      proxy === null
        ? NEVER
        : new Observable<SeenLookups>((observer) => proxy.observe((seen) => observer.next(seen))).pipe(share()),
  };
}

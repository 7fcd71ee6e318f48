import { NEVER, Observable, share } from 'rxjs';
import type { Refusal } from '#bus/policy-requests.js';
import type { KnownName } from '#contracts/known-name.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';
import type { DnsProxy, DnsStats } from '#dns/dns-proxy.js';
import { refusal } from '#statecharts/refusal.js';

/** The names that the DNS proxy has resolved, and its lookups. */
export type NodeLookups = {
  /** Null while no proxy is open. */
  stats(): Promise<DnsStats | null>;
  names(): Promise<readonly KnownName[] | Refusal>;
  /** The lookups as they happen. Allowed lookups are included only while a reader wants them. Never ends. */
  readonly seen: Observable<SeenLookups>;
  setWanted(wanted: boolean): void;
};

const ABSENT = refusal(
  'feature_unavailable',
  'the configuration has no dns section: no name is looked up on this node',
);
const NOT_RUNNING = refusal(
  'feature_unavailable',
  'the DNS proxy of this node is not running at the moment; see /ready',
);

/** `isServing` returns whether the proxy is open. */
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

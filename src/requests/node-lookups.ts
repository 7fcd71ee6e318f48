import { NEVER, Observable, share } from 'rxjs';
import type { Refusal } from '#bus/policy-requests.js';
import type { KnownName } from '#contracts/known-name.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';
import type { DnsProxy, DnsStats } from '#dns/dns-proxy.js';
import { refusal } from '#statecharts/refusal.js';

/** What the DNS proxy knows of the lookups that it judged. */
export type NodeLookups = {
  /** Null while there is none to ask. */
  stats(): Promise<DnsStats | null>;
  names(): Promise<readonly KnownName[] | Refusal>;
  /** What it sees; lookups that are allowed only while they are wanted. Never ends. */
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

/** `isServing` says whether the proxy is open. */
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

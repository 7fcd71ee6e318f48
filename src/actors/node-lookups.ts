import { NEVER, Observable, share } from 'rxjs';
import type { Refusal } from '#bus/requests.js';
import type { DeniedLookup, DnsProxy, DnsStats } from '#dns/dns-proxy.js';
import type { KnownName } from '#policy/known-name.js';
import { refusal } from '#statecharts/refusal.js';

/** What the DNS proxy knows of the lookups that it judged. */
export type NodeLookups = {
  /** Null while there is none to ask. */
  stats(): Promise<DnsStats | null>;
  names(): Promise<readonly KnownName[] | Refusal>;
  /** Those that were denied, or would have been. Never ends. */
  readonly denied: Observable<readonly DeniedLookup[]>;
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
    denied:
      proxy === null
        ? NEVER
        : new Observable<readonly DeniedLookup[]>((observer) => proxy.observe((denied) => observer.next(denied))).pipe(
            share(),
          ),
  };
}

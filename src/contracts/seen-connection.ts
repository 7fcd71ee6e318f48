import type { Verdict } from './policy-model.js';
import type { Decider } from './rule-names.js';

/** A connection or a request that the service plane decided. Addresses in host order, times in milliseconds since 1970. */
export type SeenConnection = {
  readonly kind: 'tls' | 'http';
  readonly atMs: number;
  readonly source: number;
  readonly sourcePort: number;
  readonly destination: number;
  readonly destinationPort: number;
  readonly generation: number;
  /** Null where no rule was come to. */
  readonly decider: Decider | null;
  readonly verdict: Verdict;
  /** Why, beside what the rule says; null where that is all. */
  readonly reason: string | null;
  readonly sni: string | null;
  /** The path without its query; what was cut off of it is an `…`. */
  readonly http: { readonly method: string; readonly host: string; readonly path: string } | null;
};

/** What the service plane saw since it told the last time. */
export type SeenConnections = {
  readonly connections: readonly SeenConnection[];
  /** What there was no room for. */
  readonly lost: number;
  /** What of it was denied, or would have been. */
  readonly lostDenied: number;
};

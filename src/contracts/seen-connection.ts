import type { Verdict } from './policy-model.js';
import type { Decider } from './rule-names.js';

/**
 * A connection or a request that the service plane decided. Addresses are in host order, times in
 * milliseconds since 1970.
 */
export type SeenConnection = {
  readonly kind: 'tls' | 'http';
  readonly atMs: number;
  readonly source: number;
  readonly sourcePort: number;
  readonly destination: number;
  readonly destinationPort: number;
  readonly generation: number;
  /** Null if no rule was reached. */
  readonly decider: Decider | null;
  readonly verdict: Verdict;
  /** The reason in addition to the rule; null if the rule alone decided. */
  readonly reason: string | null;
  readonly sni: string | null;
  /** The path without its query. A truncated path ends with `…`. */
  readonly http: { readonly method: string; readonly host: string; readonly path: string } | null;
};

/** Connections that the service plane decided since its last report. */
export type SeenConnections = {
  readonly connections: readonly SeenConnection[];
  /** Number of connections that were not recorded for lack of room. */
  readonly lost: number;
  /** How many of the lost connections were denied, or would have been without audit. */
  readonly lostDenied: number;
};

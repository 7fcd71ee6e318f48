import type { Verdict } from './policy-model.js';
import type { Decider } from './rule-names.js';

/**
 * A connection or HTTP request that the service plane decided. Addresses are in host byte order, times in
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
  /** The rule or default that decided the connection; null if no rule was evaluated. */
  readonly decider: Decider | null;
  readonly verdict: Verdict;
  /**
   * An additional reason for the verdict besides the deciding rule; null if the rule alone explains the
   * verdict.
   */
  readonly reason: string | null;
  readonly sni: string | null;
  /** The HTTP request. `path` excludes the query, and ends with `…` if it was truncated. */
  readonly http: { readonly method: string; readonly host: string; readonly path: string } | null;
};

/** The connections that the service plane decided since its previous report. */
export type SeenConnections = {
  readonly connections: readonly SeenConnection[];
  /** The number of connections that the report omits because its buffer was full. */
  readonly lost: number;
  /** The number of omitted connections whose verdict was deny or audit. */
  readonly lostDenied: number;
};

import type { Address, Verdict } from '#contracts/policy/policy-model.js';
import type { Decider } from '#contracts/policy/rule-names.js';

/**
 * A connection or HTTP request that the service plane decided. Addresses are in host byte order, times in
 * milliseconds since 1970.
 */
export type SeenConnection = {
  readonly kind: 'tls' | 'http';
  readonly atMs: number;
  readonly source: Address;
  readonly sourcePort: number;
  readonly destination: Address;
  readonly destinationPort: number;
  readonly generation: number;
  /**
   * The rule or default that decided the connection; null if the service plane (TLS and HTTP inspection)
   * decided before it evaluated a rule.
   */
  readonly decider: Decider | null;
  readonly verdict: Verdict;
  /**
   * An additional reason for the verdict, besides the deciding rule; null if the rule alone explains the
   * verdict.
   */
  readonly reason: string | null;
  readonly sni: string | null;
  /** The HTTP request. `path` excludes the query, and ends with `…` if it was truncated. */
  readonly http: { readonly method: string; readonly host: string; readonly path: string } | null;
};

/** The connections and HTTP requests that the service plane decided since its previous report. */
export type SeenConnections = {
  readonly connections: readonly SeenConnection[];
  /** How many connections and requests are missing in this report because the buffer for it was full. */
  readonly lost: number;
  /** How many of the `lost` connections and requests had the verdict deny or audit. */
  readonly lostDenied: number;
};

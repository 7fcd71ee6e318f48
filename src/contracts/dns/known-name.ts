/**
 * A hostname that a client has looked up, and its addresses that have a grant, with the patterns of these
 * grants. Addresses are in host byte order, times in milliseconds since 1970.
 */
export type KnownName = {
  readonly hostname: string;
  readonly addresses: readonly number[];
  readonly patterns: readonly string[];
  readonly expiresAtMs: number;
  readonly lastSeenMs: number;
};

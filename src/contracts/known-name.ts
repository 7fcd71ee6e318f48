/**
 * A hostname that a client looked up, and the grants of its addresses. Addresses are in host byte order,
 * times in milliseconds since 1970.
 */
export type KnownName = {
  readonly hostname: string;
  readonly addresses: readonly number[];
  readonly patterns: readonly string[];
  readonly expiresAtMs: number;
  readonly lastSeenMs: number;
};

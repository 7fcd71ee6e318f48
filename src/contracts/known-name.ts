/**
 * A name that was looked up, and its grants. Addresses are in host order, times in milliseconds since 1970.
 */
export type KnownName = {
  readonly hostname: string;
  readonly addresses: readonly number[];
  readonly patterns: readonly string[];
  readonly expiresAtMs: number;
  readonly lastSeenMs: number;
};

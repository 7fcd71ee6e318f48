import type { Address } from '#contracts/policy/policy-model.js';

/**
 * One or more DNS lookups within a short time with the same source, name, query type and decision. Addresses
 * are in host byte order, times in milliseconds since 1970.
 */
export type SeenLookup = {
  readonly source: Address;
  /** The name in DNS presentation format, in lower case. */
  readonly hostname: string;
  /** The number of the query type, such as 1 for A. */
  readonly type: number;
  readonly generation: number;
  /** The verdict word that decided the lookup, from the policy with this generation. */
  readonly word: number;
  readonly count: number;
  readonly lastMs: number;
};
/**
 * An address that the DNS rebinding protection of the DNS proxy removed from answers to one source for one
 * name.
 */
export type SeenRebinding = {
  readonly source: Address;
  readonly hostname: string;
  readonly address: Address;
  /** The reason why the DNS proxy removed the address from answers, as text for the operator. */
  readonly reason: string;
  readonly generation: number;
  readonly count: number;
  readonly lastMs: number;
};
/** The lookups that the DNS proxy handled since its previous report. */
export type SeenLookups = {
  readonly lookups: readonly SeenLookup[];
  readonly rebindings: readonly SeenRebinding[];
  /**
   * Pairs of an address and a name. The DNS proxy obtained a grant for the address under this name, and it
   * had no such grant before.
   */
  readonly named: readonly { readonly address: Address; readonly hostname: string }[];
  /** How many lookups are missing in this report because the buffer for it was full. */
  readonly lost: number;
  /** How many of the `lost` lookups had the verdict deny or audit. */
  readonly lostDenied: number;
};

/**
 * A hostname that a client has looked up, and its addresses that have a grant, with the patterns of these
 * grants. Addresses are in host byte order, times in milliseconds since 1970.
 */
export type KnownName = {
  readonly hostname: string;
  /** Ascending, those of IPv4 first. */
  readonly addresses: readonly Address[];
  readonly patterns: readonly string[];
  readonly expiresAtMs: number;
  readonly lastSeenMs: number;
};

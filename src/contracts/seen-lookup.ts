/**
 * Equal lookups within a short time: from one source, for one name and type, with the same decision.
 * Addresses are in host order, times in milliseconds since 1970.
 */
export type SeenLookup = {
  readonly source: number;
  /** In presentation form, in lower case. */
  readonly hostname: string;
  /** The number in the query, such as 1 for A. */
  readonly type: number;
  readonly generation: number;
  /** The verdict word in the program of that generation. */
  readonly word: number;
  readonly count: number;
  readonly lastMs: number;
};
/** An address that the rebinding protection removed from answers to one source for one name. */
export type SeenRebinding = {
  readonly source: number;
  readonly hostname: string;
  readonly address: number;
  /** A sentence for the operator. */
  readonly reason: string;
  readonly generation: number;
  readonly count: number;
  readonly lastMs: number;
};
/** Lookups that the DNS proxy handled since its last report. */
export type SeenLookups = {
  readonly lookups: readonly SeenLookup[];
  readonly rebindings: readonly SeenRebinding[];
  /** Addresses that were granted for names and were not granted before. */
  readonly named: readonly { readonly address: number; readonly hostname: string }[];
  /** Number of lookups that were not recorded for lack of room. */
  readonly lost: number;
  /** How many of the lost lookups were denied, or would have been without audit. */
  readonly lostDenied: number;
};

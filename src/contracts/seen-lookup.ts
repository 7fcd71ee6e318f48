/**
 * Equal DNS lookups within a short time: the same source, name, query type and decision. Addresses are in
 * host byte order, times in milliseconds since 1970.
 */
export type SeenLookup = {
  readonly source: number;
  /** The name in DNS presentation format, in lower case. */
  readonly hostname: string;
  /** The number of the query type, such as 1 for A. */
  readonly type: number;
  readonly generation: number;
  /** The verdict word of the decision, from the program with this generation. */
  readonly word: number;
  readonly count: number;
  readonly lastMs: number;
};
/** An address that the rebinding protection removed from answers to one source for one name. */
export type SeenRebinding = {
  readonly source: number;
  readonly hostname: string;
  readonly address: number;
  /** A sentence that tells the operator why the address was removed. */
  readonly reason: string;
  readonly generation: number;
  readonly count: number;
  readonly lastMs: number;
};
/** The lookups that the DNS proxy handled since its previous report. */
export type SeenLookups = {
  readonly lookups: readonly SeenLookup[];
  readonly rebindings: readonly SeenRebinding[];
  /** Addresses that received a grant for a name, and had no grant for this name before. */
  readonly named: readonly { readonly address: number; readonly hostname: string }[];
  /** The number of lookups that the report omits because its buffer was full. */
  readonly lost: number;
  /** The number of omitted lookups whose verdict was deny or audit. */
  readonly lostDenied: number;
};

/** Equal lookups of a short time: of one source, for one name and type, decided alike. Addresses in host order, times in milliseconds since 1970. */
export type SeenLookup = {
  readonly source: number;
  /** In presentation form, in lower case. */
  readonly hostname: string;
  /** As in the query, such as 1 for A. */
  readonly type: number;
  readonly generation: number;
  /** What decided, of the program of that generation. */
  readonly word: number;
  readonly count: number;
  readonly lastMs: number;
};
/** An address that the rebind protection left out of answers to one source for one name. */
export type SeenRebinding = {
  readonly source: number;
  readonly hostname: string;
  readonly address: number;
  /** In words. */
  readonly reason: string;
  readonly generation: number;
  readonly count: number;
  readonly lastMs: number;
};
/** What the DNS proxy saw since it told the last time. */
export type SeenLookups = {
  readonly lookups: readonly SeenLookup[];
  readonly rebindings: readonly SeenRebinding[];
  /** Addresses that were granted for names, and were not before. */
  readonly named: readonly { readonly address: number; readonly hostname: string }[];
  /** Lookups that there was no room for. */
  readonly lost: number;
  /** Those of them that were denied, or would have been. */
  readonly lostDenied: number;
};

/** What the DNS proxy and the datapath say to each other, by a port between their threads. */
export type GrantRequest = {
  readonly id: number;
  /** Row by row: an address for the text of a pattern, until a time of the monotonic clock in nanoseconds. */
  readonly patterns: readonly string[];
  readonly addresses: Uint32Array;
  readonly expiriesNs: Float64Array;
};
/** Once it is in force. `refused`: addresses that were not learned because the table was full; null where none could be. */
export type GrantAnswer = { readonly id: number; readonly refused: number | null };

import type { Decider } from './rule-names.js';

/** What the DNS proxy and the service plane ask of the datapath, by a port between their threads, and what it answers. */
export type GrantRequest = {
  readonly id: number;
  /** Row by row: an address for the text of a pattern, until a time of the monotonic clock in nanoseconds. */
  readonly patterns: readonly string[];
  readonly addresses: Uint32Array;
  readonly expiriesNs: Float64Array;
};
/** Once it is in force. `refused`: addresses that were not learned because the table was full; null where none could be. */
export type GrantAnswer = { readonly id: number; readonly refused: number | null };

/** Asks for the patterns that an address is granted for now, or was until not long ago. */
export type GrantedRequest = { readonly id: number; readonly address: number; readonly expiredToo: boolean };
/** Null where that cannot be known now. */
export type GrantedAnswer = { readonly id: number; readonly patterns: readonly string[] | null };

/** Decisions of one rule or default since the last message. Nothing answers it. */
export type HitsMessage = { readonly hits: readonly DecidedHit[] };
export type DecidedHit<By = number | Decider> = {
  readonly generation: number;
  /** Its rank in the program of that generation, or its names. */
  readonly by: By;
  readonly count: number;
  /** On the monotonic clock. */
  readonly lastNs: bigint;
};

import type { Decider } from './rule-names.js';

/** Messages between the datapath thread and the threads of the DNS proxy and the service plane. */
export type GrantRequest = {
  readonly id: number;
  /**
   * A row is an address granted for the text of a pattern until a time of the monotonic clock in nanoseconds.
   */
  readonly patterns: readonly string[];
  readonly addresses: Uint32Array;
  readonly expiriesNs: Float64Array;
};
/**
 * Sent when the grants are in force. `refused`: the number of addresses not granted because the table was
 * full; null if no grant was possible.
 */
export type GrantAnswer = { readonly id: number; readonly refused: number | null };

/**
 * Requests the patterns that an address is granted for. `expiredToo`: also those whose grant ended recently.
 */
export type GrantedRequest = { readonly id: number; readonly address: number; readonly expiredToo: boolean };
/** `patterns` is null if the grants cannot be read now. */
export type GrantedAnswer = { readonly id: number; readonly patterns: readonly string[] | null };

/** Decisions of one rule or default since the last message. There is no reply. */
export type HitsMessage = { readonly hits: readonly DecidedHit[] };
export type DecidedHit<By = number | Decider> = {
  readonly generation: number;
  /** The rank in the program of that generation, or the names of the rule or default. */
  readonly by: By;
  readonly count: number;
  /** On the monotonic clock. */
  readonly lastNs: bigint;
};

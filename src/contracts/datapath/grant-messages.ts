import type { Address } from '#contracts/policy/policy-model.js';
import type { Decider } from '#contracts/policy/rule-names.js';

/**
 * A request of a DNS or service-plane thread to the datapath thread: let addresses match hostname patterns
 * until an expiry (grants).
 */
export type GrantRequest = {
  readonly id: number;
  /**
   * The three arrays have one element for each address to allow: the hostname pattern, the address, and the
   * expiry in nanoseconds on the monotonic clock.
   */
  readonly patterns: readonly string[];
  readonly addresses: readonly Address[];
  readonly expiriesNs: Float64Array;
};
/**
 * The reply to a `GrantRequest`, sent when the datapath allows the addresses. `refused` is the number of
 * addresses that it refused because its table was full. Null: no address is allowed, because the datapath is
 * not open.
 */
export type GrantAnswer = { readonly id: number; readonly refused: number | null };

/**
 * Asks for which patterns an address has a grant (which it matches). `expiredToo`: include patterns whose
 * grant has expired but is still stored.
 */
export type GrantedRequest = { readonly id: number; readonly address: Address; readonly expiredToo: boolean };
/** The reply to a `GrantedRequest`. `patterns` is null if the datapath is not open. */
export type GrantedReply = { readonly id: number; readonly patterns: readonly string[] | null };

/**
 * The number of decisions of each rule or default since the previous `HitsMessage`. The datapath thread sends
 * no reply.
 */
export type HitsMessage = { readonly hits: readonly DecidedHit[] };
export type DecidedHit<By = number | Decider> = {
  readonly generation: number;
  /** The deciding rule or default: its rank (position) in the policy of `generation`, or its names. */
  readonly by: By;
  readonly count: number;
  /** The time of the last of the counted decisions, in nanoseconds on the monotonic clock. */
  readonly lastNs: bigint;
};

import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Family } from '#contracts/policy/policy-model.js';

/**
 * Flows that a node has seen, in a table for each family. All packets with one source, destination, protocol
 * and destination port (or ICMP type and code) are one flow, whatever their source ports. Times are seconds
 * since 1970.
 */
export type SeenFlows = Readonly<Record<Family, FlowRows>> & {
  /**
   * Lists of DNS names, to which `nameLists` refers. `names[0]` is empty; the list `UNKNOWN_NAMES` is a
   * placeholder.
   */
  readonly names: readonly (readonly string[])[];
  readonly coverage: SeenCoverage;
};

/** The flows of one family in columns: element `row` of each column is about the flow `row`. */
export type FlowRows = FlowColumns & { readonly count: number };

export type FlowColumns = {
  /** An address has `ADDRESS_WORDS` elements. */
  readonly sources: Uint32Array;
  /** The destination as the policy sees it, after DNAT. */
  readonly destinations: Uint32Array;
  /**
   * The value of `portMapKey` (protocol and port). A folded row (several flows in one row) has the bit
   * `FOLDED_DESTINATION` or `FOLDED_SOURCE`.
   */
  readonly services: Uint32Array;
  readonly first: Uint32Array;
  readonly last: Uint32Array;
  /** How many flows were opened, or how many packets passed without a flow. */
  readonly passed: Uint32Array;
  /** How many packets were denied. */
  readonly denied: Uint32Array;
  /** The verdict of the last event of the flow (`VERDICT_NUMBER`), and the bit `EVER_PASSED`. */
  readonly verdicts: Uint8Array;
  /** The hostnames for which the destination was granted when the flow was last seen: an index of `names`. */
  readonly nameLists: Uint16Array;
};

/**
 * A bit of `services`. Such a row combines all flows of one source and protocol to the network that contains
 * the destination; its port is 0.
 */
export const FOLDED_DESTINATION = 0x8000_0000;
/** A bit of `services`. The row stands for the flows of all sources in the network of the source. */
export const FOLDED_SOURCE = 0x4000_0000;

/** Whether a row stands for several flows. */
export const isFolded = (service: number): boolean => service >= FOLDED_SOURCE;

/** The lengths of the networks in which sources and destinations are folded. */
export const FOLDED_LENGTHS = {
  ipv4: { source: 32, destination: 16 },
  ipv6: { source: 64, destination: 32 },
} as const satisfies Record<Family, { readonly source: number; readonly destination: number }>;

/** The lengths of the networks that the addresses of a row are, by its service. */
export function lengthsOf(service: number, family: Family): { readonly source: number; readonly destination: number } {
  const { source, destination } = FOLDED_LENGTHS[family];
  const bits = 32 * ADDRESS_WORDS[family];
  return {
    source: (service & FOLDED_SOURCE) === 0 ? bits : source,
    destination: service < FOLDED_DESTINATION ? bits : destination,
  };
}

/** A bit of `verdicts`: such a flow passed at least once. */
export const EVER_PASSED = 8;
export const VERDICT_BITS = 7;
/** The list of names of a flow whose names were not recorded, because there were too many. */
export const UNKNOWN_NAMES = 1;

/** The time that the tables cover. A table without flows does not shorten it. */
export type SeenCoverage = {
  /** All flows that passed since then, while the node recorded, are in the tables. */
  readonly sinceS: number;
  /** Like `sinceS`, for flows of which every packet was denied. */
  readonly deniedSinceS: number;
  readonly untilS: number;
  /** For how many seconds since `sinceS` the node recorded. */
  readonly recordedS: number;
  readonly isRecording: boolean;
  /** Number of rows that are folded. */
  readonly folded: number;
  /** Events since `sinceS` that were lost before they were recorded. */
  readonly lost: number;
  /** Events since `sinceS` that were not recorded because their source had used its share of the rows. */
  readonly unrecorded: number;
};

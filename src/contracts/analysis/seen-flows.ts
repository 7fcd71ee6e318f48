/**
 * Flows that a node has seen, in columns: element `row` of each column is about the flow `row`. All packets
 * with one source, destination, protocol and destination port (or ICMP type and code) are one flow, whatever
 * their source ports. Times are seconds since 1970.
 */
export type SeenFlows = FlowColumns & {
  readonly count: number;
  /** `names[0]` is empty. The list `UNKNOWN_NAMES` has no meaning. */
  readonly names: readonly (readonly string[])[];
  readonly coverage: SeenCoverage;
};

export type FlowColumns = {
  /** Addresses are unsigned 32-bit numbers in host byte order. */
  readonly sources: Uint32Array;
  /** The destination as the policy sees it, after DNAT. */
  readonly destinations: Uint32Array;
  /** `portMapKey`, or a folded service, see `FOLDED`. */
  readonly services: Uint32Array;
  readonly first: Uint32Array;
  readonly last: Uint32Array;
  /** How many flows were opened, or how many packets passed without a flow. */
  readonly passed: Uint32Array;
  /** How many packets were denied. */
  readonly denied: Uint32Array;
  /** The verdict of the last one (`VERDICT_NUMBER`), and `EVER_PASSED`. */
  readonly verdicts: Uint8Array;
  /** The hostnames for which the destination was granted when the flow was last seen: an index of `names`. */
  readonly nameLists: Uint16Array;
};

/**
 * A bit of `services`. The row stands for all flows of the source and protocol to the network of
 * `FOLDED_BITS` bits in which the destination is; the port is 0.
 */
export const FOLDED = 0x8000_0000;
export const FOLDED_BITS = 16;
/** A bit of `verdicts`: such a flow passed at least once. */
export const EVER_PASSED = 8;
export const VERDICT_BITS = 7;
/** The list of names of a flow whose names were not recorded, because there were too many. */
export const UNKNOWN_NAMES = 1;

/** The time that the columns cover. */
export type SeenCoverage = {
  /** All flows that passed since then, while the node recorded, are in the columns. */
  readonly sinceS: number;
  /** The same for flows that were only denied. */
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

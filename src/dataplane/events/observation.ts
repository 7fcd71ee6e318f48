import type { DROP_REASON, FlowState } from '#contracts/datapath/datapath-numbers.js';
import type { End } from '#contracts/datapath/translation.js';
import type { Address, Verdict } from '#contracts/policy/policy-model.js';
import type { FlowEventType } from './event.js';

/**
 * The fields that decoded events of packets and of flows have in common. The addresses and ports of a flow
 * are those of the packet that opened the flow. `hit`, `hitCheck`, `epoch` and `word` (the verdict word)
 * identify the rule that decided the packet or flow.
 */
type Common = {
  /** Time of the event in nanoseconds on the monotonic clock; `EventBatch.unixMs` converts it to a date. */
  readonly timeNs: number;
  /** Null if the datapath applied no rule to the packet or flow. */
  readonly verdict: Verdict | null;
  /** True if the policy denies the packet, but the packet passed because of audit mode (D4). */
  readonly audited: boolean;
  readonly protocol: number;
  readonly ifindex: number;
  readonly source: Address;
  readonly destination: Address;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly epoch: number;
  readonly word: number;
  readonly hit: number;
  readonly hitCheck: number;
  /**
   * Number of events that the rate limit of one CPU suppressed for sources with the same hash as this
   * source, since that CPU last sent an event of such a source.
   */
  readonly suppressed: number;
  /**
   * The destination on the wire (in the header), if the node has translated it (DNAT); `destination` is then
   * the one after DNAT. Null in the event of a flow that has ended.
   */
  readonly wireDestination: End<Address> | null;
};

/** A decoded event about one packet that belongs to no flow. */
export type PacketObservation = Common & {
  readonly type: 'denied' | 'dropped' | 'passed';
  readonly dropReason: keyof typeof DROP_REASON | null;
  /** True if an egress hook saw the packet; false for an ingress hook. */
  readonly outgoing: boolean;
  readonly icmp: { readonly type: number; readonly code: number } | null;
  readonly tcpFlags: number;
  /**
   * `packets`: number of packets on the wire that the event stands for. `length`: sum of the bytes of these
   * packets.
   */
  readonly packets: number;
  readonly length: number;
};

/**
 * A decoded event about a flow. In `packets` and `bytes`, index 0 counts the packets of the side that opened
 * the flow.
 */
export type FlowObservation = Common & {
  readonly type: FlowEventType;
  readonly state: FlowState;
  /**
   * Why a flow ended or was suspended: the drop reason if the policy refuses the flow, `cut` if an operator
   * cut the flow, else null. With a drop reason, `word` and `hit` belong to the rule that refuses the flow,
   * not to the rule that opened the flow.
   */
  readonly endReason: keyof typeof DROP_REASON | 'cut' | null;
  /**
   * True if the datapath applied no rule to the flow. The flow came from an interface that is not policed,
   * or from one of Weir's own sockets.
   */
  readonly foreign: boolean;
  readonly openedNs: number;
  readonly packets: readonly [number, number];
  readonly bytes: readonly [number, number];
};

export type Observation = PacketObservation | FlowObservation;

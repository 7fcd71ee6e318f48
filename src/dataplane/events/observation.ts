import type { DROP_REASON, FlowState } from '#contracts/datapath-numbers.js';
import type { Verdict } from '#contracts/policy-model.js';
import type { Ipv6Ends } from './ipv6-ends.js';

/**
 * One decoded event of the kernel. Addresses are unsigned 32-bit numbers in host order; the addresses and
 * ports of a flow are those of the packet that opened it. `hit`, `hitCheck`, `epoch` and `word` identify the
 * rule that decided.
 */
type Common = {
  /** On the monotonic clock; see `EventBatch.unixMs`. */
  readonly timeNs: number;
  /** Null if no rule was applied. */
  readonly verdict: Verdict | null;
  /** The verdict was deny, and the packet passed under audit (D4). */
  readonly audited: boolean;
  readonly protocol: number;
  readonly ifindex: number;
  readonly source: number;
  readonly destination: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly epoch: number;
  readonly word: number;
  readonly hit: number;
  readonly hitCheck: number;
  /**
   * Events about this source that the rate limit of this CPU suppressed since the last event that was sent.
   */
  readonly suppressed: number;
};

/** The fate of one packet that belongs to no flow. */
export type PacketObservation = Common & {
  readonly type: 'denied' | 'dropped' | 'passed';
  readonly dropReason: keyof typeof DROP_REASON | null;
  /** Seen at an egress hook. */
  readonly outgoing: boolean;
  readonly icmp: { readonly type: number; readonly code: number } | null;
  /** The addresses of an IPv6 packet; `source` and `destination` are 0 then. */
  readonly ipv6: Ipv6Ends | null;
  readonly tcpFlags: number;
  /** The number of packets on the wire; `length` is the sum of their bytes. */
  readonly packets: number;
  readonly length: number;
};

/** `packets` and `bytes`: the first number counts the side that opened the flow. */
export type FlowObservation = Common & {
  readonly type: 'flow_opened' | 'flow_ended';
  readonly state: FlowState;
  /**
   * Why a flow ended: the drop reason of the packet that the policy refused, `cut` if an operator cut the
   * flow, else null. With a drop reason, `word` and `hit` are those of the rule that refuses the flow, not of
   * the rule that opened it.
   */
  readonly endReason: keyof typeof DROP_REASON | 'cut' | null;
  /** The flow came in by an interface that is not policed, and no rule was applied. */
  readonly foreign: boolean;
  readonly openedNs: number;
  readonly packets: readonly [number, number];
  readonly bytes: readonly [number, number];
};

export type Observation = PacketObservation | FlowObservation;

import type { DROP_REASON, FlowState } from '#contracts/datapath-numbers.js';
import type { Verdict } from '#contracts/policy-model.js';
import type { Ipv6Ends } from './ipv6-ends.js';

/**
 * One event of the kernel, decoded. Addresses are unsigned 32-bit numbers in host order; of a flow, addresses and ports
 * are those of the packet that opened it. `hit`, `hitCheck`, `epoch` and `word` lead to the rule that decided.
 */
type Common = {
  /** Of the monotonic clock; see `EventBatch.unixMs`. */
  readonly timeNs: number;
  /** Null where nothing was judged. */
  readonly verdict: Verdict | null;
  /** A deny that passed under audit (D4). */
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
  /** Events of about this source that were not sent since the last one that was, on the same CPU. */
  readonly suppressed: number;
};

/** What became of one packet that belongs to no flow. */
export type PacketObservation = Common & {
  readonly type: 'denied' | 'dropped' | 'passed';
  readonly dropReason: keyof typeof DROP_REASON | null;
  /** Seen where the node sends. */
  readonly outgoing: boolean;
  readonly icmp: { readonly type: number; readonly code: number } | null;
  /** Of IPv6; `source` and `destination` are 0 then. */
  readonly ipv6: Ipv6Ends | null;
  readonly tcpFlags: number;
  /** Packets on the wire, and bytes of all of them. */
  readonly packets: number;
  readonly length: number;
};

/** `packets` and `bytes`: first from the side that opened the flow. */
export type FlowObservation = Common & {
  readonly type: 'flow_opened' | 'flow_ended';
  readonly state: FlowState;
  /**
   * Why a flow ended: the drop reason of the packet that the policy refused, `cut` where an operator cut it, else null.
   * With a drop reason, `word` and `hit` are those of the rule that refuses the flow, not of the rule that opened it.
   */
  readonly endReason: keyof typeof DROP_REASON | 'cut' | null;
  /** Came in by an interface that is not policed: nothing was judged. */
  readonly foreign: boolean;
  readonly openedNs: number;
  readonly packets: readonly [number, number];
  readonly bytes: readonly [number, number];
};

export type Observation = PacketObservation | FlowObservation;

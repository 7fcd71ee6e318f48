import { FLOW_STATE, type FlowState } from '#contracts/datapath-numbers.js';

/**
 * Offsets in bytes of `struct flow` of `bpf/weir.h` and of its `struct tally`, which follows it. The key
 * comes first.
 */
export const FLOW_OFFSETS = {
  key: 0,
  judgement: 16,
  last_seen: 24,
  state: 28,
  flags: 29,
  opened: 30,
  ifindex: 32,
  packets: 40,
  bytes: 48,
  hops: 56,
  opened_ns: 64,
  total_packets: 72,
  total_bytes: 88,
  folded_packets: 104,
  folded_bytes: 112,
  hit: 120,
  hit_check: 124,
} as const;
export const FLOW_BYTES = 128;
/** Bytes of `struct flow`; the rest is `struct tally`. */
export const FLOW_LINE_BYTES = 64;
export const FLOW_KEY_OFFSETS = {
  low_address: 0,
  high_address: 4,
  low_port: 8,
  high_port: 10,
  protocol: 12,
  kind: 13,
  use: 14,
} as const;
export const FLOW_KEY_BYTES = 16;
/** The value of `use` in a slot that holds a flow. */
export const KEY_USED = 1;

const OPENED_BY_HIGH = 1;
const FOREIGN = 2;
/** No packet has confirmed the flow yet. */
export const FLOW_HALF_OPEN = 8;

/**
 * A flow of the kernel's table. Addresses are unsigned 32-bit numbers in host order; `[0]` is the side that
 * opened the flow.
 */
export type Flow = {
  readonly source: number;
  readonly destination: number;
  /** For ICMP queries both ports are the identifier. */
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly protocol: number;
  /** Type of the ICMP query that opened the flow; 0 for other protocols. */
  readonly icmpQuery: number;
  readonly state: FlowState;
  /**
   * The flow came in by an interface that is not policed: only its replies are let in, and no rule was
   * applied.
   */
  readonly foreign: boolean;
  readonly halfOpen: boolean;
  readonly epoch: number;
  readonly word: number;
  /** Entry of `hits` where this flow is counted, and the low word of the identity of its rule; 0: none. */
  readonly hit: number;
  readonly hitCheck: number;
  readonly packets: readonly [bigint, bigint];
  readonly bytes: readonly [bigint, bigint];
  /** On the monotonic clock. */
  readonly openedNs: bigint;
  /** In ticks, which wrap around. */
  readonly lastSeen: number;
  readonly ifindex: readonly [number, number];
};

/** Types of ICMP queries; the index is the class in `kind`. */
const ICMP_QUERIES = [0, 8, 13, 15, 17];
const STATES = new Map<number, FlowState>(
  (Object.entries(FLOW_STATE) as [FlowState, number][]).map(([name, number]) => [number, name]),
);

export function readFlow(view: DataView, at = 0): Flow {
  const u32 = (offset: number): number => view.getUint32(at + offset, true);
  const u64 = (offset: number): bigint => view.getBigUint64(at + offset, true);
  const u16 = (offset: number): number => view.getUint16(at + offset, true);
  const flags = view.getUint8(at + FLOW_OFFSETS.flags);
  const byHigh = (flags & OPENED_BY_HIGH) !== 0;
  const [low, high] = [u32(FLOW_KEY_OFFSETS.low_address), u32(FLOW_KEY_OFFSETS.high_address)];
  const [lowPort, highPort] = [u16(FLOW_KEY_OFFSETS.low_port), u16(FLOW_KEY_OFFSETS.high_port)];
  const total = (of: 'packets' | 'bytes', side: 0 | 1): bigint => {
    const more = (u32(FLOW_OFFSETS[of] + 4 * side) - u32(FLOW_OFFSETS[`folded_${of}`] + 4 * side)) >>> 0;
    return u64(FLOW_OFFSETS[`total_${of}`] + 8 * side) + BigInt(more);
  };
  return {
    source: byHigh ? high : low,
    destination: byHigh ? low : high,
    sourcePort: byHigh ? highPort : lowPort,
    destinationPort: byHigh ? lowPort : highPort,
    protocol: view.getUint8(at + FLOW_KEY_OFFSETS.protocol),
    icmpQuery: ICMP_QUERIES[view.getUint8(at + FLOW_KEY_OFFSETS.kind) >> 1] ?? 0,
    state: STATES.get(view.getUint8(at + FLOW_OFFSETS.state)) ?? 'other_opened',
    foreign: (flags & FOREIGN) !== 0,
    halfOpen: (flags & FLOW_HALF_OPEN) !== 0,
    word: u32(FLOW_OFFSETS.judgement),
    epoch: u32(FLOW_OFFSETS.judgement + 4) >>> 1,
    hit: u32(FLOW_OFFSETS.hit),
    hitCheck: u32(FLOW_OFFSETS.hit_check),
    packets: [total('packets', 0), total('packets', 1)],
    bytes: [total('bytes', 0), total('bytes', 1)],
    openedNs: u64(FLOW_OFFSETS.opened_ns),
    lastSeen: u32(FLOW_OFFSETS.last_seen),
    ifindex: [u32(FLOW_OFFSETS.ifindex), u32(FLOW_OFFSETS.ifindex + 4)],
  };
}

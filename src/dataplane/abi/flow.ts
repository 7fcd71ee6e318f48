import { FLOW_STATE, type FlowState } from '#contracts/datapath/datapath-numbers.js';
import type { Address, AddressOf, Family } from '#contracts/policy/policy-model.js';
import { isRefused } from '#contracts/policy/verdict-word.js';
import { epochOf } from './active-word.js';

/**
 * Offsets in bytes in the memory of one flow of IPv4. The memory begins with `struct flow` of `bpf/weir.h`,
 * whose first field is the key. `struct tally`, the statistics of the flow, follows directly.
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
  tcp_numbers: 56,
  hops: 60,
  opened_ns: 64,
  total_packets: 72,
  total_bytes: 88,
  folded_packets: 104,
  folded_bytes: 112,
  hit: 120,
  hit_check: 124,
} as const;
/**
 * Bit in the upper half of the field `judgement` of a flow. If it is set, the next packet classifies the
 * flow again. The rest of `judgement` (the active word and the verdict word of the last classification)
 * stays, so that the counters of the flow still count for the rule that decided it. The bit is never set in
 * the active word of the map `active`.
 */
export const RECLASSIFY = 0x8000_0000;
export const FLOW_BYTES = 128;
/** Size of `struct flow` in bytes. Its statistics, `struct tally`, follow. */
export const FLOW_STRUCT_BYTES = 64;
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
/** Like `FLOW_KEY_OFFSETS`, in the BPF object of IPv6. */
const IPV6_FLOW_KEY_OFFSETS = {
  low_address: 0,
  high_address: 16,
  low_port: 32,
  high_port: 34,
  protocol: 36,
  kind: 37,
  use: 38,
} as const;
/** Like `FLOW_OFFSETS`, in the BPF object of IPv6. */
const IPV6_FLOW_OFFSETS = {
  key: 0,
  judgement: 40,
  last_seen: 48,
  state: 52,
  flags: 53,
  opened: 54,
  ifindex: 56,
  packets: 64,
  bytes: 72,
  tcp_numbers: 80,
  hops: 84,
  opened_ns: 128,
  total_packets: 136,
  total_bytes: 152,
  folded_packets: 168,
  folded_bytes: 176,
  hit: 184,
  hit_check: 188,
} as const;
/** Value of the key field `use` if the slot of the flow table contains a flow. */
export const KEY_USED = 1;

export const OPENED_BY_HIGH = 1;
const FOREIGN = 2;
/**
 * Bit of `flags`: the flow is not established yet. An ACK of the opener (TCP) or a reply establishes a flow.
 */
export const FLOW_HALF_OPEN = 8;

/** The memory of a flow in the BPF object of one IP family. */
export type FlowLayout<A extends Address> = {
  readonly addressBits: number;
  readonly offsets: Readonly<Record<keyof typeof FLOW_OFFSETS, number>>;
  readonly keyOffsets: Readonly<Record<keyof typeof FLOW_KEY_OFFSETS, number>>;
  readonly keyBytes: number;
  /** Size of `struct flow` in bytes, and its size with `struct tally`. */
  readonly structBytes: number;
  readonly bytes: number;
  /**
   * The ICMP type of each query class. The index is the class in the key field `kind`; class 0 is no query.
   */
  readonly icmpQueries: readonly number[];
  readonly addressAt: (view: DataView, at: number) => A;
};

export const FLOW_LAYOUTS: { readonly [F in Family]: FlowLayout<AddressOf<F>> } = {
  ipv4: {
    addressBits: 32,
    offsets: FLOW_OFFSETS,
    keyOffsets: FLOW_KEY_OFFSETS,
    keyBytes: FLOW_KEY_BYTES,
    structBytes: FLOW_STRUCT_BYTES,
    bytes: FLOW_BYTES,
    icmpQueries: [0, 8, 13, 15, 17],
    addressAt: (view, at) => view.getUint32(at, true),
  },
  ipv6: {
    addressBits: 128,
    offsets: IPV6_FLOW_OFFSETS,
    keyOffsets: IPV6_FLOW_KEY_OFFSETS,
    keyBytes: 40,
    structBytes: 128,
    bytes: 192,
    icmpQueries: [0, 128, 139],
    addressAt: (view, at) => (view.getBigUint64(at + 8, true) << 64n) | view.getBigUint64(at, true),
  },
};

/**
 * A flow of the kernel's flow table, by default of IPv4. In pairs, index 0 is the side that opened the flow.
 */
export type Flow<A extends Address = number> = {
  readonly source: A;
  readonly destination: A;
  /** For an ICMP query, `sourcePort` and `destinationPort` are both the ICMP identifier. */
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly protocol: number;
  /** Type of the ICMP query that opened the flow; 0 for other protocols. */
  readonly icmpQuery: number;
  readonly state: FlowState;
  /**
   * True if no rule was applied to the flow: it came from an interface that is not policed, or from one of
   * Weir's own sockets. Policed interfaces let in only replies of such a flow.
   */
  readonly foreign: boolean;
  /**
   * Whether no reply has confirmed the flow yet. Also true for a suspended flow (denied by a later policy).
   */
  readonly halfOpen: boolean;
  /** Whether a later policy refuses the flow (`is_suspended` of `bpf/classify/drop_reason.h`). */
  readonly suspended: boolean;
  readonly epoch: number;
  readonly word: number;
  /**
   * `hit`: index in the map `hits` where the datapath counts the packets of this flow; 0 if no rule counts
   * them. `hitCheck`: the low 32 bits of the identity of the rule at this index.
   */
  readonly hit: number;
  readonly hitCheck: number;
  readonly packets: readonly [bigint, bigint];
  readonly bytes: readonly [bigint, bigint];
  /** Time of the first packet in nanoseconds, on the monotonic clock. */
  readonly openedNs: bigint;
  /**
   * Time of the last packet in ticks of `TICK_NS` on the monotonic clock. The number has 32 bits and wraps.
   */
  readonly lastSeen: number;
  readonly ifindex: readonly [number, number];
};

const STATES = new Map<number, FlowState>(
  (Object.entries(FLOW_STATE) as [FlowState, number][]).map(([name, number]) => [number, name]),
);

/**
 * Returns by how much a 32-bit counter of a flow has grown since the last flush, which added the counter to
 * the statistics. `folded` is the value of the counter at this flush. The result is negative if a flush took
 * place after the read of the counter and before the read of `folded` (`since_flush` of
 * `bpf/report/counters.h`).
 */
export function sinceFlush(counter: number, folded: number): number {
  return (counter - folded) | 0;
}

/** Returns the type of an ICMP query from the field `kind` of its flow key; 0 for other protocols. */
export function icmpQueryOf(kind: number, { icmpQueries }: Pick<FlowLayout<Address>, 'icmpQueries'>): number {
  return icmpQueries[kind >> 1] ?? 0;
}

/** Reads the flow at offset `at` of `view`. `layout` is that of the family of the flow table. */
export function readFlow<A extends Address>(layout: FlowLayout<A>, view: DataView, at = 0): Flow<A> {
  const { offsets, keyOffsets, addressAt } = layout;
  const u32 = (offset: number): number => view.getUint32(at + offset, true);
  const u64 = (offset: number): bigint => view.getBigUint64(at + offset, true);
  const u16 = (offset: number): number => view.getUint16(at + offset, true);
  const flags = view.getUint8(at + offsets.flags);
  const byHigh = (flags & OPENED_BY_HIGH) !== 0;
  const [low, high] = [addressAt(view, at + keyOffsets.low_address), addressAt(view, at + keyOffsets.high_address)];
  const [lowPort, highPort] = [u16(keyOffsets.low_port), u16(keyOffsets.high_port)];
  const total = (of: 'packets' | 'bytes', side: 0 | 1): bigint => {
    const more = sinceFlush(u32(offsets[of] + 4 * side), u32(offsets[`folded_${of}`] + 4 * side));
    return u64(offsets[`total_${of}`] + 8 * side) + BigInt(more);
  };
  return {
    source: byHigh ? high : low,
    destination: byHigh ? low : high,
    sourcePort: byHigh ? highPort : lowPort,
    destinationPort: byHigh ? lowPort : highPort,
    protocol: view.getUint8(at + keyOffsets.protocol),
    icmpQuery: icmpQueryOf(view.getUint8(at + keyOffsets.kind), layout),
    state: STATES.get(view.getUint8(at + offsets.state)) ?? 'other_opened',
    foreign: (flags & FOREIGN) !== 0,
    halfOpen: (flags & FLOW_HALF_OPEN) !== 0,
    suspended: (flags & FOREIGN) === 0 && isRefused(u32(offsets.judgement)),
    word: u32(offsets.judgement),
    epoch: epochOf(u32(offsets.judgement + 4)),
    hit: u32(offsets.hit),
    hitCheck: u32(offsets.hit_check),
    packets: [total('packets', 0), total('packets', 1)],
    bytes: [total('bytes', 0), total('bytes', 1)],
    openedNs: u64(offsets.opened_ns),
    lastSeen: u32(offsets.last_seen),
    ifindex: [u32(offsets.ifindex), u32(offsets.ifindex + 4)],
  };
}

/** Number of flow slots in one set of the flow table; must equal `FLOW_WAYS` of `bpf/weir.h`. */
const WAYS = 8;

/**
 * Returns log2 of the number of sets in the flow table. The table has at least twice as many slots as
 * `capacity`. So a set is rarely full before the table contains `capacity` flows.
 */
export function setShift(capacity: number): number {
  return Math.max(0, Math.ceil(Math.log2((2 * capacity) / WAYS)));
}

/**
 * Returns the number of flows for which a flow table with `lines` slots is sized: half of the slots (see
 * `setShift`).
 */
export function capacityOf(lines: number): number {
  return lines / 2;
}

export function flowSets(capacity: number): number {
  return 2 ** setShift(capacity);
}

/** Returns the number of slots of a flow table with this capacity in flows. */
export function flowSlots(capacity: number): number {
  return WAYS * flowSets(capacity);
}

import { SocketAddress } from 'node:net';

/**
 * Offsets in bytes of the fields of `struct event` of `bpf/weir.h`. A test compares these offsets with the
 * BTF of the BPF object.
 */
export const EVENT_OFFSETS = {
  time_ns: 0,
  type: 8,
  verdict: 9,
  drop_reason: 10,
  protocol: 11,
  ifindex: 12,
  source: 16,
  destination: 20,
  source_port: 24,
  destination_port: 26,
  icmp_type: 28,
  icmp_code: 29,
  tcp_flags: 30,
  flags: 31,
  epoch: 32,
  word: 36,
  hit: 40,
  hit_check: 44,
  suppressed: 48,
  length: 52,
  opened_ns: 56,
  packets: 64,
  bytes: 80,
} as const;
export const EVENT_BYTES = 96;

export const EVENT_TYPE = {
  flow_opened: 1,
  flow_ended: 2,
  denied: 3,
  dropped: 4,
  passed: 5,
  flow_suspended: 6,
  flow_resumed: 7,
} as const;
export type EventType = keyof typeof EVENT_TYPE;
/** The types of events about a flow; the others are about a single packet. */
const FLOW_EVENT_TYPES = ['flow_opened', 'flow_ended', 'flow_suspended', 'flow_resumed'] as const;
export type FlowEventType = (typeof FLOW_EVENT_TYPES)[number];
const OF_FLOWS = new Set<string>(FLOW_EVENT_TYPES);

export const isFlowEvent = (type: EventType): type is FlowEventType => OF_FLOWS.has(type);

export const EVENT_FLAG = { audited: 1, foreign: 2, outgoing: 4, ipv6: 8, cut: 16, translated: 32 } as const;

export type Ipv6Ends = { readonly source: string; readonly destination: string };

/**
 * Returns the addresses of the dropped IPv6 packet of the event that begins at byte `at`; null if the event
 * is about IPv4.
 */
export function ipv6Ends(view: DataView, at: number): Ipv6Ends | null {
  if ((view.getUint8(at + EVENT_OFFSETS.flags) & EVENT_FLAG.ipv6) === 0) return null;
  return {
    source: addressText(view, at + EVENT_OFFSETS.packets),
    destination: addressText(view, at + EVENT_OFFSETS.bytes),
  };
}

function addressText(view: DataView, at: number): string {
  const groups = Array.from({ length: 8 }, (_, index) => view.getUint16(at + 2 * index).toString(16));
  return new SocketAddress({ family: 'ipv6', address: groups.join(':') }).address;
}

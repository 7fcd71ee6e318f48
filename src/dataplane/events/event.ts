import type { Address } from '#contracts/policy/policy-model.js';

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
  destination: 32,
  source_port: 48,
  destination_port: 50,
  icmp_type: 52,
  icmp_code: 53,
  tcp_flags: 54,
  flags: 55,
  epoch: 56,
  word: 60,
  hit: 64,
  hit_check: 68,
  suppressed: 72,
  length: 76,
  opened_ns: 80,
  packets: 88,
  bytes: 104,
} as const;
export const EVENT_BYTES = 120;

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

/**
 * Returns the address at byte `at` of a record, whose lower half comes first. `flags`: the flags of the
 * event.
 */
export function eventAddress(view: DataView, at: number, flags: number): Address {
  if ((flags & EVENT_FLAG.ipv6) === 0) return view.getUint32(at, true);
  return (view.getBigUint64(at + 8, true) << 64n) | view.getBigUint64(at, true);
}

/** Numbers of `bpf/weir.h`; a test holds the two together through the object's BTF. */
export const LAYOUT_VERSION = 1;
export const LINE_WORDS = 16;
export const LINE_BYTES = LINE_WORDS * 4;
export const IMAGE_MAGIC = 0x52494557;

export const DROP_REASON = {
  none: 0,
  malformed: 1,
  non_ipv4: 2,
  vlan_tagged: 3,
  fragment: 4,
  spoofed_source: 5,
  no_policy: 6,
  policy_deny: 7,
  service_plane_absent: 8,
  out_of_state: 9,
  flow_table_full: 10,
  guard: 11,
  program_damaged: 12,
} as const;

export const COUNTER_INDEX = {
  allow: 1,
  audit: 2,
  to_node: 3,
  arp: 4,
  non_ipv4: 5,
  flows_opened: 8,
  flows_closed: 9,
  flows_rejudged: 10,
  drops: 32,
} as const;
export const COUNTERS = 96;

export const REVERSE_PATH = { off: 0, loose: 1, strict: 2 } as const;
export type ReversePath = keyof typeof REVERSE_PATH;

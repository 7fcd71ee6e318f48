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

/** What each drop reason means, and what to do about it; `docs/errors.md` is written from this table. */
export const DROP_REASON_MEANING: Readonly<Record<Exclude<keyof typeof DROP_REASON, 'none'>, string>> = {
  malformed: 'A header is wrong, or ends before the packet does.',
  non_ipv4: 'Neither IPv4 nor ARP, and `dataplane.non_ipv4` is `drop`.',
  vlan_tagged: 'The frame carries a VLAN tag where the hook sees it; police the VLAN interface instead.',
  fragment: 'An IPv4 fragment. This version forwards none: let path MTU discovery work, or lower the MTU.',
  spoofed_source:
    'The source does not route back through the interface it came in by (`dataplane.reverse_path`), or no host can have it.',
  no_policy: 'Nothing was ever put in force on this node, not even its fallback: it is starting for the first time.',
  policy_deny: 'A rule, a default action or the default policy denied it.',
  service_plane_absent: 'A TLS rule matched, and the service plane that would judge it is not running.',
  out_of_state: 'TCP that opens no connection and belongs to none; see `dataplane.pickup`.',
  flow_table_full: 'The flow table has no room for a new flow; raise `dataplane.flow_capacity`.',
  guard:
    'The guard found a forwarded packet that the datapath had not judged: a program was detached, or an interface is new.',
  program_damaged: 'The compiled policy leads out of itself. This is a bug: please report it.',
};

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

/**
 * The numbers in this file must equal those in `bpf/weir.h`. A test compares most of the enums with the BTF
 * of the compiled object.
 */
export const LAYOUT_VERSION = 9;
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
  tcp_flags: 13,
  fragment_overlap: 14,
  fragment_tiny: 15,
  icmp_redirect: 16,
  source_route: 17,
  dns_proxy_absent: 18,
  not_inspected: 19,
  node_uninspected: 20,
  loopback: 21,
  flow_share: 22,
  tcp_sequence: 23,
  ipv6: 24,
  router_guard: 25,
} as const;

/**
 * For each drop reason, a sentence for the operator about the cause, and in some cases the remedy.
 * `docs/errors.md` is generated from this table.
 */
export const DROP_REASON_MEANING: Readonly<Record<Exclude<keyof typeof DROP_REASON, 'none'>, string>> = {
  malformed: 'A header is invalid or truncated.',
  non_ipv4: 'A frame that is neither IP nor ARP, and `dataplane.non_ipv4` is `drop`.',
  vlan_tagged: 'The frame has a VLAN tag at the hook; police the VLAN interface instead.',
  fragment: 'A later fragment of a datagram whose first fragment was not seen, was denied, or is older than 30 s.',
  spoofed_source:
    'No route to the source leads through the interface on which the packet arrived (`dataplane.reverse_path`), or the source address is invalid.',
  no_policy: 'This node starts for the first time: neither a policy nor the fallback is active yet.',
  policy_deny: 'A rule, a default action or the default policy denied the packet.',
  service_plane_absent: 'A TLS rule matched, and the service plane, which decides such connections, is not running.',
  out_of_state: 'A TCP packet that opens no connection and belongs to none; see `dataplane.pickup`.',
  flow_table_full: 'The flow table has no room for a new flow; raise `dataplane.flow_capacity`.',
  guard:
    'The guard found a forwarded packet that the datapath had not classified: a program was detached, or an interface is new.',
  program_damaged: 'An index in the compiled policy is out of bounds. This is a bug: please report it.',
  tcp_flags: 'An invalid combination of TCP flags, such as SYN and FIN, or no flag at all.',
  fragment_overlap:
    'A fragment overlaps another fragment of its datagram, or the datagram has two ends, or data after its end.',
  fragment_tiny: 'A first fragment that ends before the ports or flags of its datagram.',
  icmp_redirect: 'An ICMP redirect that would have been forwarded; routers send redirects only to their neighbours.',
  source_route: 'The packet has an IP option for source routing (RFC 791, 3.1).',
  dns_proxy_absent: 'A DNS query that `dns.transparent` diverts, while the DNS proxy is not running.',
  not_inspected:
    'A TLS rule matched a connection that was opened before the rule was active; the service plane cannot take it over.',
  node_uninspected:
    'A TLS rule matched a connection from or to the node itself (`dataplane.police_local`); the service plane cannot inspect it.',
  loopback: 'The source or destination is in 127.0.0.0/8, which no packet on a network may have (RFC 1122, 3.2.1.3).',
  flow_share:
    'The flow table is more than half full, and the source has used its share; raise `dataplane.flow_share` or `dataplane.flow_capacity`.',
  tcp_sequence:
    'A TCP reset whose sequence number is not the next one that its receiver expects (RFC 5961, 3.2). It is forged, or its sender had unacknowledged data under way; that sender repeats the reset when the receiver answers.',
  ipv6: 'Forwarded IPv6, and `dataplane.ipv6` is `drop`. With `police_local` also IPv6 of the node itself. With `enforce`, only while the programs of IPv6 are replaced.',
  router_guard:
    'A router advertisement, a redirect, or a message of a DHCPv6 server, from a bridge port that is not in `dataplane.router_ports` (RFC 6105, RFC 7610).',
};

/** The values of `enum priority` in `bpf/weir.h`. The ingress hook writes them to `skb->priority`. */
export const PRIORITY = {
  passed: 0x7765_6900,
  redirected: 0x7765_6910,
  pending: 0x7765_6920,
  translated: 0x7765_6930,
} as const;

export const COUNTER_INDEX = {
  allow: 1,
  audit: 2,
  to_node: 3,
  arp: 4,
  non_ipv4: 5,
  foreign: 6,
  from_node: 7,
  flows_opened: 8,
  flows_closed: 9,
  flows_rejudged: 10,
  half_opened: 11,
  icmp_related: 12,
  diverted: 13,
  inspected: 14,
  joined: 15,
  events: 16,
  events_lost: 17,
  events_suppressed: 18,
  dns_unroutable: 19,
  flows_suspended: 20,
  flows_resumed: 21,
  drops: 32,
} as const;
export const COUNTERS = 96;

/** The bits of `enum events_wanted` in `bpf/weir.h`: the kinds of events that the datapath reports. */
export const EVENTS_WANTED = { packets: 1, flows: 2 } as const;

export const REVERSE_PATH = { off: 0, loose: 1, strict: 2 } as const;
export type ReversePath = keyof typeof REVERSE_PATH;

export const FLOW_STATE = {
  tcp_syn_sent: 1,
  tcp_syn_received: 2,
  tcp_established: 3,
  tcp_half_closed: 4,
  tcp_closing: 5,
  tcp_reset: 6,
  udp_opened: 7,
  udp_replied: 8,
  icmp_opened: 9,
  icmp_replied: 10,
  other_opened: 11,
  other_replied: 12,
} as const;
export type FlowState = keyof typeof FLOW_STATE;
export const FLOW_STATES = 16;
/** The datapath stores the time of the last packet of a flow in ticks. One tick is 2^20 ns. */
export const TICK_NS = 1 << 20;
/** The datapath stores the opening time of a flow in units of 2^23 ns. */
export const OPENED_SHIFT = 23;

/** Returns the names by number. An index without a name has the value undefined. */
export function namesByNumber<N extends string>(numbers: Readonly<Record<N, number>>): readonly (N | undefined)[] {
  const names: (N | undefined)[] = [];
  for (const [name, number] of Object.entries<number>(numbers)) names[number] = name as N;
  return names;
}

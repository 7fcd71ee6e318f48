/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV6_H
#define WEIR_IPV6_H

/* Policies have no IPv6 rules. By default the datapath does not filter IPv6 packets from and to the node
 * itself. The setting `dataplane.ipv6` decides whether forwarded IPv6 packets pass or are dropped (D17).
 */

#define FAMILY_INET6 10
#define NEXT_HOP_BY_HOP 0
#define NEXT_ICMPV6 58

/* Hop limit of neighbour discovery. Only a packet that no router has forwarded has this hop limit (RFC 4861).
 */
#define HOP_LIMIT_OF_DISCOVERY 255
/* Hop limit of multicast listener discovery. Routers do not forward such a packet (RFC 3810). */
#define HOP_LIMIT_OF_LISTENERS 1

#define ROUTER_SOLICITATION 133
#define ICMPV6_REDIRECT_MESSAGE 137
#define LISTENER_QUERY 130
#define LISTENER_DONE 132
#define LISTENER_REPORT_V2 143

#define HOP_BY_HOP_BYTES 8
#define SCOPE_LINK 2

#define AT_NEXT (ETH_HLEN + sizeof(struct ipv6hdr))

/* Returns whether a packet is neighbour discovery, or multicast listener discovery behind a hop-by-hop
 * header. The datapath passes such packets whatever the settings, because without them no IPv6 address of the
 * link is reachable.
 */
static __always_inline bool is_discovery(struct __sk_buff *skb, const struct ipv6hdr *ip)
{
	__u8 next[HOP_BY_HOP_BYTES + 1], type;

	if (ip->nexthdr == NEXT_ICMPV6 && ip->hop_limit == HOP_LIMIT_OF_DISCOVERY)
		return !bpf_skb_load_bytes(skb, AT_NEXT, &type, sizeof(type)) && type >= ROUTER_SOLICITATION &&
		       type <= ICMPV6_REDIRECT_MESSAGE;
	if (ip->nexthdr != NEXT_HOP_BY_HOP || ip->hop_limit != HOP_LIMIT_OF_LISTENERS)
		return false;
	if (bpf_skb_load_bytes(skb, AT_NEXT, next, sizeof(next)) || next[0] != NEXT_ICMPV6 || next[1] != 0)
		return false;
	type = next[HOP_BY_HOP_BYTES];
	return (type >= LISTENER_QUERY && type <= LISTENER_DONE) || type == LISTENER_REPORT_V2;
}

/* Returns whether an IPv6 packet is addressed to the node, like `is_not_forwarded` for IPv4. Also returns
 * true if the packet has no route: if the network stack nevertheless forwards the packet, the guard (Weir's
 * nftables rules) drops it, because the packet has no mark.
 */
__noinline bool is_ipv6_to_node(struct __sk_buff *skb, const struct ipv6hdr *ip)
{
	const struct port *port = port_of(skb);
	struct bpf_fib_lookup fib = {};
	const __u8 *to;
	long found;

	if (settings.classify_all || !ip)
		return false;
	if (port && is_switched_by(skb, port))
		return false;
	to = ip->daddr.s6_addr;
	/* Link-local multicast stays on the link. A router may also forward multicast of a wider scope, so such a
	 * packet is not only for the node.
	 */
	if (to[0] == 0xff)
		return !settings.pass_ipv6 || (to[1] & 15) <= SCOPE_LINK;
	if (to[0] == 0xfe && (to[1] & 0xc0) == 0x80)
		return true;
	fib.family = FAMILY_INET6;
	fib.l4_protocol = ip->nexthdr;
	fib.flowinfo = *(const __be32 *)ip & bpf_htonl(0x0fffffff);
	__builtin_memcpy(fib.ipv6_src, &ip->saddr, sizeof(fib.ipv6_src));
	__builtin_memcpy(fib.ipv6_dst, &ip->daddr, sizeof(fib.ipv6_dst));
	fib.ifindex = routed_interface(skb, port);
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), settings.fib_flags);
	return found == BPF_FIB_LKUP_RET_NOT_FWDED || found == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Reports a dropped IPv6 packet, if events of packets are requested (enum events_wanted). The event has no
 * fields for IPv6 addresses: `packets` contains the source address and `bytes` the destination address, in
 * network byte order.
 */
__noinline int report_ipv6(struct __sk_buff *skb, const struct ipv6hdr *ip, bool outgoing)
{
	__u64 now_ns = coarse_ns();
	__u16 ports[2] = {};
	const __u32 *from;
	struct event *event;

	if (!ip || !are_events_wanted(EVENTS_WANTED_PACKETS))
		return 0;
	from = ip->saddr.s6_addr32;
	event = reserve_event(from[0] ^ from[1] ^ from[2] ^ from[3], false, now_ns);
	if (!event)
		return 0;
	if (header_bytes(ip->nexthdr) && bpf_skb_load_bytes(skb, AT_NEXT, ports, sizeof(ports)))
		ports[0] = ports[1] = 0;
	event->time_ns = now_ns;
	event->type = EVENT_DROPPED;
	event->verdict = 0;
	event->drop_reason = DROP_IPV6;
	event->protocol = ip->nexthdr;
	event->ifindex = skb->ifindex;
	event->source = 0;
	event->destination = 0;
	event->source_port = bpf_ntohs(ports[0]);
	event->destination_port = bpf_ntohs(ports[1]);
	event->icmp_type = 0;
	event->icmp_code = 0;
	event->tcp_flags = 0;
	event->flags = EVENT_IPV6 | (outgoing ? EVENT_OUTGOING : 0);
	event->epoch = 0;
	event->word = 0;
	event->hit = 0;
	event->hit_check = 0;
	event->length = skb->len;
	event->opened_ns = 0;
	__builtin_memcpy(event->packets, &ip->saddr, sizeof(event->packets));
	__builtin_memcpy(event->bytes, &ip->daddr, sizeof(event->bytes));
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Handles an IPv6 packet. `outgoing` is true if the node itself sends the packet and `police_local` is
 * set.
 */
__noinline enum outcome handle_ipv6(struct __sk_buff *skb, bool outgoing)
{
	struct ipv6hdr ip = {};
	bool has_header = !bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip));
	const struct port *port = outgoing ? 0 : port_of(skb);

	if (!outgoing && is_left_to_bridge(skb))
		return pass_unmarked(skb, COUNT_TO_NODE);
	if (has_header && port && is_discovery(skb, &ip))
		return pass(skb, COUNT_NON_IPV4);
	if (has_header && is_discovery(skb, &ip))
		return pass_unmarked(skb, outgoing ? COUNT_FROM_NODE : COUNT_TO_NODE);
	if (has_header && !outgoing && !settings.police_local && is_ipv6_to_node(skb, &ip))
		return pass_unmarked(skb, COUNT_TO_NODE);
	if (settings.pass_ipv6)
		return outgoing ? pass_unmarked(skb, COUNT_NON_IPV4) : pass(skb, COUNT_NON_IPV4);
	if (settings.hands_over)
		return TO_PREDECESSOR;
	count_packet(COUNT_DROPS + DROP_IPV6, skb);
	if (has_header)
		report_ipv6(skb, &ip, outgoing);
	return outgoing ? OUTCOME_DROP : deny_to_others(skb);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV6_H
#define WEIR_IPV6_H

/* How the hooks of the object for IPv4 handle IPv6 packets (D17). The setting `dataplane.ipv6` decides
 * whether policies apply to them. If not, it also decides whether forwarded IPv6 packets pass or are
 * dropped, and by default the datapath does not filter IPv6 packets from and to the node itself.
 */

#define FAMILY_INET6 10
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

static __always_inline any_address_t address_of_ipv6(const struct in6_addr *address)
{
	const __be64 *halves = (const __be64 *)address;

	return (any_address_t)bpf_be64_to_cpu(halves[0]) << 64 | bpf_be64_to_cpu(halves[1]);
}

/* Reports a dropped IPv6 packet, if events of packets are requested (enum events_wanted). */
__noinline int report_ipv6(struct __sk_buff *skb, const struct ipv6hdr *ip, bool outgoing)
{
	__u64 now_ns = coarse_ns();
	__u8 first[4] = {};
	bool is_icmp;
	const __u32 *from;
	struct event *event;

	if (!ip || !are_events_wanted(EVENTS_WANTED_PACKETS))
		return 0;
	from = ip->saddr.s6_addr32;
	/* The budget is that of the /64 prefix: a host can have any address of it. */
	event = reserve_event(from[0] ^ from[1], false, now_ns);
	if (!event)
		return 0;
	is_icmp = ip->nexthdr == NEXT_ICMPV6;
	if ((is_icmp || header_bytes(ip->nexthdr)) && bpf_skb_load_bytes(skb, AT_NEXT, first, sizeof(first)))
		__builtin_memset(first, 0, sizeof(first));
	event->time_ns = now_ns;
	event->type = EVENT_DROPPED;
	event->verdict = 0;
	event->drop_reason = DROP_IPV6;
	event->protocol = ip->nexthdr;
	event->ifindex = skb->ifindex;
	event->source = address_of_ipv6(&ip->saddr);
	event->destination = address_of_ipv6(&ip->daddr);
	event->source_port = is_icmp ? 0 : first[0] << 8 | first[1];
	event->destination_port = is_icmp ? 0 : first[2] << 8 | first[3];
	event->icmp_type = is_icmp ? first[0] : 0;
	event->icmp_code = is_icmp ? first[1] : 0;
	event->tcp_flags = 0;
	event->flags = EVENT_IPV6 | (outgoing ? EVENT_OUTGOING : 0);
	event->epoch = 0;
	event->word = 0;
	event->hit = 0;
	event->hit_check = 0;
	event->length = skb->len;
	event->opened_ns = 0;
	event->packets[0] = packets_of(skb);
	event->bytes[0] = skb->len;
	event->packets[1] = event->bytes[1] = 0;
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
	if (has_header && discovery_type(skb, ip.nexthdr, ip.hop_limit)) {
		if (port)
			return pass(skb, COUNT_NON_IPV4);
		if (outgoing)
			return pass_unmarked(skb, COUNT_FROM_NODE);
		/* Check this first: without the guard (nftables rules of Weir), the network stack could forward a message
		 * that must not leave its link.
		 */
		if (settings.classify_all || is_ipv6_to_node(skb, &ip))
			return pass_unmarked(skb, COUNT_TO_NODE);
	}
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

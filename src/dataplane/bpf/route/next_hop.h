/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_NEXT_HOP_H
#define WEIR_NEXT_HOP_H

static __always_inline void fill_lookup(struct bpf_fib_lookup *fib, const struct packet *packet, address_t source,
					address_t destination, __u16 source_port, __u16 destination_port)
{
	fib->family = IP_FAMILY;
	set_fib_class(fib, packet->tos);
	fib->l4_protocol = packet->protocol;
	fib->sport = bpf_htons(source_port);
	fib->dport = bpf_htons(destination_port);
	set_fib_source(fib, source);
	set_fib_destination(fib, destination);
}

/* Looks up the next hop of a packet, and stores it in `packet->way`. Returns true if the kernel would not
 * forward the packet: the destination is the node itself, a multicast or broadcast address, or has no route.
 * If the network stack nevertheless forwards the packet, the guard (Weir's nftables rules) drops it. Routes
 * do not matter for a packet that a bridge switches: the function returns false, and stores no next hop.
 */
__noinline bool is_not_forwarded(struct __sk_buff *skb, struct packet *packet)
{
	struct bpf_fib_lookup fib = {};
	const struct port *port = port_of(skb);
	__u32 by;
	long found;

	if (settings.classify_all || !packet || (port && is_switched_by(skb, port)))
		return false;
	if (is_multicast_or_broadcast(packet->destination))
		return true;
	/* For direct forwarding, ask the kernel: the copied routes have no gateway and no MTU. */
	by = !settings.direct && !is_on_this_network(packet->destination) ? copied_route(skb, packet->destination) : 0;
	if (by) {
		packet->way.ifindex = by;
		return false;
	}
	fill_lookup(&fib, packet, packet->source, packet->destination, packet->source_port, packet->destination_port);
	fib.ifindex = routed_interface(skb, port);
	if (settings.direct)
		fib.tot_len = sizeof(ip_header_t); /* a length other than 0 makes bpf_fib_lookup return the MTU */
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), settings.fib_flags);
	/* Store the next hop only if the gateway is of the same IP family: the gateway of an IPv4 route can be an
	 * IPv6 address (RFC 5549). Store no next hop for 0.0.0.0/8, because the network stack drops such packets
	 * (RFC 1122, 3.2.1.3). The kernel finds no next hop for a link-local address of IPv6.
	 */
	if (fib.family == IP_FAMILY && !is_on_this_network(packet->destination) &&
	    (found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH)) {
		packet->way.ifindex = fib.ifindex;
		packet->way.gateway = gateway_of(&fib, packet->destination);
		packet->way.mtu = fib.mtu_result;
	}
	return found == BPF_FIB_LKUP_RET_NOT_FWDED || found == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Returns whether the source address of a packet is forged (D17a). Looks up the route to the source. The
 * kernel returns "not forwarded" if the source is an address or a broadcast address of the node, or has no
 * route; such a source is forged. On an interface without forwarding the kernel looks up no route. Packets
 * from such an interface can only go to the node, and the network stack checks their source.
 *
 * The source of a packet of a bridge port must route back through the bridge. If the bridge has neither
 * address nor route, or does not forward, routes cannot show whether the source is forged.
 */
__noinline bool is_spoofed(struct __sk_buff *skb, const struct packet *packet)
{
	const struct port *port = port_of(skb);
	struct bpf_fib_lookup fib = {};
	__u32 by, expected;
	long found;

	if (settings.classify_all || !packet)
		return false;
	/* A host without an address sends to a group from 0.0.0.0 (DHCP: RFC 2131, IGMP: RFC 4541). */
	if (port && is_unspecified(packet->source) && is_to_group(skb))
		return false;
	if (is_martian(packet->source) || (port && is_own_address(port, packet->source)))
		return true;
	/* No route leads back to a link-local source, and the network stack does not forward its packets. */
	if (has_link_scope(packet->source))
		return false;
	if (settings.reverse_path == REVERSE_PATH_OFF || (port && !port->PORT_HAS_ROUTES))
		return false;
	expected = routed_interface(skb, port);
	by = copied_route(skb, packet->source);
	if (by)
		return settings.reverse_path == REVERSE_PATH_STRICT && by != skb->ifindex;
	fill_lookup(&fib, packet, source_of_way_back(packet->destination), packet->source, packet->destination_port,
		    packet->source_port);
	fib.ifindex = expected;
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), settings.fib_flags);
	if (found == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return false;
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH &&
	    found != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return true;
	return settings.reverse_path == REVERSE_PATH_STRICT && fib.ifindex != expected;
}

/* Returns the outgoing interface of an incoming packet, from the copied routes. Returns 0 if the caller must
 * ask the kernel:
 * - the copied routes are not valid or lack an address,
 * - an address is special, for example multicast, or
 * - the strict reverse-path check finds another interface for the source.
 */
static __always_inline __u32 plain_route(struct __sk_buff *skb, address_t source, address_t destination)
{
	struct line *header = copied_routes();
	__u32 by, from;

	if (settings.direct || settings.classify_all || !header || !is_copy_right(skb, header))
		return 0;
	if (is_special_destination(destination) || is_martian(source))
		return 0;
	by = copied_interface(header, destination);
	if (!by)
		return 0;
	from = copied_interface(header, source);
	if (!from || (settings.reverse_path == REVERSE_PATH_STRICT && from != skb->ifindex))
		return 0;
	return by;
}

__noinline bool is_plainly_forwarded(struct __sk_buff *skb, struct packet *packet)
{
	if (!packet)
		return false;
	/* IPv6 has no copied routes, and does not use `skb`. Without this use, the compiler passes any register, and
	 * the verifier requires the context.
	 */
	asm volatile("" : : "r"(skb));
	packet->way.ifindex = packet->prefetched.has_asked ? packet->prefetched.ifindex
							   : plain_route(skb, packet->source, packet->destination);
	return packet->way.ifindex;
}

/* Returns whether the node translates addresses of this IP family (NAT), and the datapath searches
 * conntrack.
 */
static __always_inline bool is_translating(const struct active *in_force)
{
	return READ_ONCE(in_force->translates) & TRANSLATES_FAMILY;
}

/* User space renews the deadline of each family. When the process of user space has ended, the deadline
 * passes, and packets go through the network stack again.
 */
static __always_inline bool may_send_directly(const struct active *in_force, __u64 now_ns)
{
	return settings.direct && now_ns < READ_ONCE(in_force->DIRECT_UNTIL);
}

/* Returns whether packets may be sent past the network stack, and the node does not translate addresses. */
static __always_inline bool is_sent_directly(const struct active *in_force, __u64 now_ns)
{
	return !(CAN_SEND_TRANSLATED && is_translating(in_force)) && may_send_directly(in_force, now_ns);
}

/* Returns whether the node translates addresses (NAT), and the datapath may send packets of established
 * connections directly.
 */
static __always_inline bool is_sent_translated(const struct active *in_force, __u64 now_ns)
{
	return CAN_SEND_TRANSLATED && is_translating(in_force) && may_send_directly(in_force, now_ns);
}

/* A flow uses a stored next hop for HOP_LASTS units of 0.27 s, about 1.1 s. So a packet may follow an old
 * route for this time after a route has changed; user space takes about as long to follow such a change.
 */
#define HOP_SHIFT 28 /* log2 of the unit in ns: 0.27 s */
#define HOP_LASTS 4
/* Number of ticks (1.05 ms each; 4.2 s in total) after which another next hop can replace an entry of `ways`.
 * A flow uses a stored next hop only for 1.1 s, so no flow gets the next hop of another route.
 */
#define WAY_TICKS 4000
#define WAY_TRIES 4
#define BEING_WRITTEN 0xffffffffU

static __always_inline __u16 hop_time(__u64 now_ns)
{
	return now_ns >> HOP_SHIFT;
}

static __always_inline bool is_fresh(__u32 hop, __u64 now_ns)
{
	return hop && (__u16)(hop_time(now_ns) - (hop >> 16)) < HOP_LASTS;
}

/* Layout of the field `hops` of a flow: for each of the two directions an index in `ways` (0: not known), and
 * one time of the lookup for both.
 */
#define HOP_BITS 11
#define HOPS_TIME 22
#define HOPS_TIMES 1023

_Static_assert(WAYS == 1 << HOP_BITS && 2 * HOP_BITS == HOPS_TIME, "two indexes and a time");

static __always_inline bool are_fresh(__u32 hops, __u64 now_ns)
{
	return hops && ((hop_time(now_ns) - (hops >> HOPS_TIME)) & HOPS_TIMES) < HOP_LASTS;
}

/* Returns the next hop of one direction of a flow. The caller must have checked `are_fresh`. */
static __always_inline __u32 hop_of(__u32 hops, __u32 side)
{
	return (side ? hops >> HOP_BITS : hops) & (WAYS - 1);
}

/* Returns `hops` with the next hop of one direction replaced. `hop`: as `store_next_hop` returns it. If the
 * stored next hop of the other direction is fresh, the stored time stays, and also applies to the new next
 * hop.
 */
static __always_inline __u32 with_hop(__u32 hops, __u32 side, __u32 hop, __u64 now_ns)
{
	__u32 index = hop & (WAYS - 1);

	if (!are_fresh(hops, now_ns))
		hops = (__u32)hop_time(now_ns) << HOPS_TIME;
	return side ? (hops & ~((WAYS - 1) << HOP_BITS)) | index << HOP_BITS : (hops & ~(WAYS - 1)) | index;
}

/* Returns the entry of `ways` that a next hop of a flow refers to. The caller must have checked
 * `is_fresh` or `are_fresh`.
 */
static __always_inline struct way *way_of(__u32 hop)
{
	__u32 at = hop & 0xffff;

	return bpf_map_lookup_elem(&ways, &at);
}

static __always_inline bool is_way(const struct way *a, const struct way *b)
{
	return a->ifindex == b->ifindex && same_header_address(a->gateway, b->gateway) && a->mtu == b->mtu;
}

/* Stores a next hop in `ways`, or finds an equal entry. Returns index | time << 16, the format of `hop` in
 * struct join; 0 if the function can replace no entry (so index 0 is never used). Another CPU can rewrite an
 * entry during the comparison, but the compare-and-swap of `refreshed` then fails.
 */
__noinline __u32 store_next_hop(const struct way *way, __u64 now_ns)
{
	__u32 now = (ticks_of(now_ns) & ~1U) ?: 2, hop = (__u32)hop_time(now_ns) << 16, start, old = 0, old_time = 0;
	struct way *kept;

	if (!way)
		return 0;
	start = ((way->ifindex * 0x9e3779b1U ^ number_of_header_address(way->gateway)) * 0x85ebca6bU + way->mtu) >> 16;
	for (__u32 tries = 0; tries < WAY_TRIES; tries++) {
		__u32 at = (start + tries) & (WAYS - 1), seen;

		kept = bpf_map_lookup_elem(&ways, &at);
		if (!at || !kept)
			continue;
		seen = READ_ONCE(kept->refreshed);
		asm volatile("" ::: "memory");
		if (seen == BEING_WRITTEN)
			continue;
		if (seen && is_way(kept, way) && __sync_val_compare_and_swap(&kept->refreshed, seen, now) == seen)
			return hop | at;
		if (!old && (!seen || (__s32)(now - seen) >= WAY_TICKS)) {
			old = at;
			old_time = seen;
		}
	}
	kept = bpf_map_lookup_elem(&ways, &old);
	if (!old || !kept || __sync_val_compare_and_swap(&kept->refreshed, old_time, BEING_WRITTEN) != old_time)
		return 0;
	kept->ifindex = way->ifindex;
	kept->gateway = way->gateway;
	kept->mtu = way->mtu;
	asm volatile("" ::: "memory");
	WRITE_ONCE(kept->refreshed, now);
	return hop | old;
}

#endif

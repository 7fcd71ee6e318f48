/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_TRANSLATION_H
#define WEIR_TRANSLATION_H

/* Packets of flows whose addresses the node translates (NAT). A policy sees the real ends of such a flow: the
 * client before SNAT and the server after DNAT (D17b). The ingress hook runs before the kernel translates a
 * packet, so only the destination of the packet can differ from the real destination.
 *
 * The ingress hook reads the real destination of a known flow from conntrack. All other packets to addresses
 * of the node pass to the forward judge (forward_judge.h), which runs after the translation. Without NAT
 * rules, `translates` of the map `active` is 0 and this code does nothing.
 */

/* Subsets of kernel structs: CO-RE relocates the field offsets to those of the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
union nf_conntrack_man_proto {
	__be16 all;
};
struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
};
struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
	} dst;
};
struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
};
struct ip_ct_tcp {
	__u8 state;
};
union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
};
struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	union nf_conntrack_proto proto;
};

#define CONNTRACK_INFO 7UL         /* the bits of `_nfct` that contain the kernel's enum ip_conntrack_info */
#define CONNTRACK_IS_REPLY 3       /* this and higher values of enum ip_conntrack_info: a reply */
#define CONNTRACK_NEW 2     /* value of enum ip_conntrack_info: the first packet of a connection */
#define CONNTRACK_SRC_NAT (1 << 4) /* the kernel's IPS_SRC_NAT, a bit of `status` in struct nf_conn */
#define CONNTRACK_DST_NAT (1 << 5) /* the kernel's IPS_DST_NAT */
#define CONNTRACK_TCP_ESTABLISHED 3 /* the kernel's TCP_CONNTRACK_ESTABLISHED, a state of a TCP connection */
#define CONNTRACK_ASSURED (1 << 2) /* IPS_ASSURED: an established TCP connection or UDP flow */
/* The network stack must see each packet of a connection with one of these bits: IPS_SEQ_ADJUST, IPS_DYING,
 * IPS_FIXED_TIMEOUT, IPS_NAT_CLASH, IPS_HELPER, IPS_OFFLOAD and IPS_HW_OFFLOAD.
 */
#define CONNTRACK_BY_STACK (1 << 6 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15)

struct sk_buff___outgoing {
	unsigned long _nfct;
};
#pragma clang attribute pop

/* The first 12 bytes of the kernel's struct bpf_ct_opts, a size that every kernel accepts. */
struct conntrack_options {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir; /* result: 0 if the packet has the direction of the connection's first packet */
	__u8 reserved[2];
};

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 tuple_bytes,
					 struct conntrack_options *options, __u32 options_bytes) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *connection) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn *connection, __u32 ms) __ksym __weak; /* Linux 6.0 */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak; /* Linux 6.2 */

/* Returns whether an address is in a range of `dataplane.translated`. Packets to such an address are decided
 * only by the destination after DNAT.
 */
static __always_inline bool is_service_address(address_t address)
{
	for (__u32 index = 0; index < TRANSLATED_PREFIXES && index < settings.translated_prefixes; index++)
		if (is_in_prefix(address, settings.translated[index].mask, settings.translated[index].address))
			return true;
	return false;
}

/* Returns whether conntrack may know a destination of this packet after DNAT. For a packet that a bridge
 * switches, the result is false: the guard of bridges drops translated packets, so the addresses in the
 * header decide.
 */
static __always_inline bool may_be_translated(struct __sk_buff *skb, const struct active *in_force, const struct packet *packet)
{
	return settings.reads_conntrack && is_translating(in_force) && !packet->outgoing &&
	       packet->fragment == FRAGMENT_NONE &&
	       (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP) && !is_switched(skb);
}

/* Extends the conntrack time-out of a connection, as the network stack does for each packet. Returns false if
 * the network stack must handle each packet of the connection.
 */
static __always_inline bool keep_connection(struct nf_conn *connection, __u8 protocol)
{
	if (!settings.keep_tcp_ms || !(connection->status & CONNTRACK_ASSURED) || connection->status & CONNTRACK_BY_STACK)
		return false;
	if (protocol == IPPROTO_TCP && connection->proto.tcp.state != CONNTRACK_TCP_ESTABLISHED)
		return false;
	return !bpf_ct_change_timeout(connection, protocol == IPPROTO_TCP ? settings.keep_tcp_ms : settings.keep_udp_ms);
}

/* Searches conntrack for the connection of a packet with this destination in its header. Stores in
 * `packet->translated` the addresses and ports of the packet after NAT, which conntrack has as those of the
 * opposite direction. Returns false if conntrack has no such connection. `keeps`: also extend the time-out of
 * the connection, so that the packet may be sent without the network stack.
 */
static __always_inline bool find_connection(struct __sk_buff *skb, struct packet *packet, address_t destination, __u16 port, bool keeps)
{
	struct conntrack_options options = { .netns_id = BPF_F_CURRENT_NETNS };
	struct translated *translated = &packet->translated;
	struct nf_conn *connection;
	struct tuple tuple = {};

	if (!settings.reads_conntrack)
		return false;
	options.l4proto = packet->protocol;
	tuple.source = header_address_of(packet->source);
	tuple.destination = header_address_of(destination);
	tuple.source_port = bpf_htons(packet->source_port);
	tuple.destination_port = bpf_htons(port);
	connection = bpf_skb_ct_lookup(skb, (struct bpf_sock_tuple *)&tuple, sizeof(tuple), &options, sizeof(options));
	if (!connection)
		return false;
	translated->is_reply = options.dir != 0;
	if (options.dir == 0) {
		translated->destination = address_of_header(connection->tuplehash[1].tuple.src.u3.CONNTRACK_ADDRESS);
		translated->source = address_of_header(connection->tuplehash[1].tuple.dst.u3.CONNTRACK_ADDRESS);
		translated->ports = (__u32)bpf_ntohs(connection->tuplehash[1].tuple.dst.u.all) << 16 |
				    bpf_ntohs(connection->tuplehash[1].tuple.src.u.all);
	} else {
		translated->destination = address_of_header(connection->tuplehash[0].tuple.src.u3.CONNTRACK_ADDRESS);
		translated->source = address_of_header(connection->tuplehash[0].tuple.dst.u3.CONNTRACK_ADDRESS);
		translated->ports = (__u32)bpf_ntohs(connection->tuplehash[0].tuple.dst.u.all) << 16 |
				    bpf_ntohs(connection->tuplehash[0].tuple.src.u.all);
	}
	translated->is_sent = keeps && keep_connection(connection, packet->protocol);
	bpf_ct_release(connection);
	return true;
}

static __always_inline bool translates_destination(const struct packet *packet)
{
	return !same_address(packet->translated.destination, packet->destination) ||
	       (__u16)packet->translated.ports != packet->destination_port;
}

/* Stores the flow key and the destination in the header (before NAT) in `packet->wire`. */
static __always_inline void keep_wire(struct packet *packet)
{
	packet->wire.key = packet->place.key;
	packet->wire.from_high = packet->place.from_high;
	packet->wire.destination = packet->destination;
	packet->wire.port = packet->destination_port;
}

/* Replaces the destination and the flow key of a packet by those after DNAT. Returns false and changes
 * nothing if conntrack does not know the connection, or does not translate its destination. Does not search
 * conntrack for a SYN that the copied routes forward, so that a flood of SYNs costs the same as without NAT.
 */
__noinline bool find_real_destination(struct __sk_buff *skb, struct packet *packet)
{
	if (!packet)
		return false;
	if (packet->protocol == IPPROTO_TCP && opens_tcp(packet) && !is_service_address(packet->destination) &&
	    is_plainly_forwarded(skb, packet))
		return false;
	if (!find_connection(skb, packet, packet->destination, packet->destination_port, false) || !translates_destination(packet))
		return false;
	packet->is_translated = true;
	packet->is_nat_reply = packet->translated.is_reply;
	packet->prefetched.list = 0; /* the fast path has found this list for the destination before DNAT, so it is not valid */
	packet->prefetched.has_asked = false;
	keep_wire(packet);
	packet->destination = packet->translated.destination;
	packet->destination_port = packet->translated.ports;
	find_flow_key(packet);
	return true;
}

/* Returns whether the policy must allow two destinations: the one after DNAT, which `find_real_destination`
 * has stored, and also the one in the header. Returns false if the header has an address of the node or a
 * service address, or if the packet is a reply.
 */
__noinline bool has_two_destinations(struct __sk_buff *skb, struct packet *packet)
{
	bool forwarded;
	address_t real;

	if (!packet || packet->is_nat_reply || is_service_address(packet->wire.destination))
		return false;
	real = packet->destination;
	packet->destination = packet->wire.destination;
	forwarded = !is_not_forwarded(skb, packet);
	packet->destination = real;
	return forwarded;
}

/* Puts the destination and the flow key of the header back, which `find_real_destination` has replaced. */
static __always_inline void restore_destination(struct packet *packet)
{
	packet->is_translated = false;
	packet->destination = packet->wire.destination;
	packet->destination_port = packet->wire.port;
	find_flow_key(packet);
}

/* Replaces the source and the flow key of an outgoing reply by those of the server after DNAT, because the
 * flow of the connection has these addresses. Otherwise the reply would open a foreign flow (which no rule
 * decides) with the translated source, and all packets from the client would pass as replies of that flow.
 * Returns false and changes nothing if the packet is not a reply of a connection with DNAT.
 */
static __always_inline bool find_real_source(struct __sk_buff *skb, struct packet *packet)
{
	struct sk_buff___outgoing *outgoing;
	struct nf_conn *connection;
	unsigned long state;

	if (!bpf_cast_to_kern_ctx)
		return false;
	outgoing = bpf_cast_to_kern_ctx(skb);
	state = outgoing->_nfct;
	connection = (void *)(state & ~CONNTRACK_INFO);
	if (!connection || (state & CONNTRACK_INFO) < CONNTRACK_IS_REPLY ||
	    !(BPF_CORE_READ(connection, status) & CONNTRACK_DST_NAT))
		return false;
	packet->source = address_of_header(BPF_CORE_READ(connection, tuplehash[1].tuple.src.u3.CONNTRACK_ADDRESS));
	packet->source_port = bpf_ntohs(BPF_CORE_READ(connection, tuplehash[1].tuple.src.u.all));
	packet->icmp_id = packet->protocol == PROTOCOL_ICMP ? packet->source_port : packet->icmp_id;
	find_flow_key(packet);
	return true;
}

/* Marks a packet that was classified by its real ends (client before SNAT, server after DNAT) and passes. So
 * the forward judge, the netfilter program at the forward hook, does not classify the packet again.
 */
static __always_inline enum outcome set_translated(struct __sk_buff *skb)
{
	skb->mark |= settings.nat_bit;
	set_priority(skb, PRIORITY_TRANSLATED);
	return OUTCOME_PASS;
}

/* Returns whether a flow is established and not closing. Conntrack need not see the packets of such a flow,
 * except those that end it.
 */
static __always_inline bool is_established(__u8 state)
{
	return state == FLOW_TCP_ESTABLISHED || state == FLOW_UDP_REPLIED;
}

/* Called for a packet that passes, if the node translates addresses. `state` is the state of its flow (0: no
 * rule decided the flow). Stores an alias (the translation), so that the next packets of the flow need no
 * search in conntrack. Does nothing without NAT, and for packets that a bridge switches.
 */
__noinline enum outcome mark_translated(struct __sk_buff *skb, struct packet *packet, __u8 state)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);
	bool sends;

	if (!packet || packet->outgoing || !in_force || !is_translating(in_force) || is_switched(skb))
		return OUTCOME_PASS;
	/* The network stack handles the packets that begin or end a connection, so that conntrack notices them. */
	sends = settings.keep_tcp_ms && is_established(state) && packet->fragment == FRAGMENT_NONE &&
		!(packet->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) && is_sent_translated(in_force, coarse_ns());
	if (sends) {
		if (!packet->is_translated)
			keep_wire(packet);
		if (!find_connection(skb, packet, packet->wire.destination, packet->wire.port, true) || translates_destination(packet))
			packet->translated.is_sent = false;
	}
	if (sends || packet->is_translated)
		packet->sends_translated = store_alias(packet, coarse_ns()) && sends;
	/* The key of a foreign flow (which no rule decided) has the source after SNAT. The forward judge reads the
	 * source before SNAT, so it cannot find such a flow.
	 */
	return packet->is_translated || !state ? set_translated(skb) : OUTCOME_PASS;
}

/* Returns whether a forwarded packet was decided by its real ends (client before SNAT, server after DNAT): by
 * the ingress hook or by the forward judge.
 */
static __always_inline bool has_passed_judge(const struct __sk_buff *skb)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	return skb->mark & settings.nat_bit && in_force && is_translating(in_force);
}

/* Returns whether a packet goes to a service address while the node translates addresses. */
static __always_inline bool is_to_service(struct __sk_buff *skb, const struct active *in_force, const struct packet *packet)
{
	return settings.translated_prefixes && !packet->outgoing && is_translating(in_force) &&
	       is_service_address(packet->destination) && !is_switched(skb);
}

/* Passes a packet to the network stack that is addressed to the node or to a service address. If the node
 * translates addresses, the network stack may forward the packet. The forward judge, the netfilter program at
 * the forward hook, must then decide it. This function checks the source, because the forward judge cannot
 * look up a route.
 */
__noinline enum outcome pass_to_node(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	if (!packet || !in_force || !is_translating(in_force) || is_multicast_or_broadcast(packet->destination) ||
	    is_spoofed(skb, packet))
		return pass_unmarked(skb, COUNT_TO_NODE);
	if (settings.hands_over)
		return TO_PREDECESSOR;
	count_packet(COUNT_TO_NODE, skb);
	skb->mark |= settings.nat_bit;
	set_priority(skb, PRIORITY_PENDING);
	return OUTCOME_PASS;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_TRANSLATION_H
#define WEIR_TRANSLATION_H

/* Packets of flows whose addresses the node translates (NAT). A policy sees the real ends of such a flow: the
 * client before SNAT and the server after DNAT (D17b). The ingress hook runs before the kernel translates a
 * packet, so only the destination of the packet can differ from the real destination.
 *
 * The ingress hook reads the real destination of a known flow from conntrack. It leaves each other packet
 * that is addressed to the node to the forward judge (forward_judge.h), which runs after the translation.
 * Without NAT rules, `translates` of the map `active` is 0 and this code does nothing.
 */

/* Subsets of kernel structs: CO-RE relocates the field offsets to those of the running kernel. */
union nf_inet_addr {
	__be32 ip;
} __attribute__((preserve_access_index));
union nf_conntrack_man_proto {
	__be16 all;
} __attribute__((preserve_access_index));
struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} __attribute__((preserve_access_index));
struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
	} dst;
} __attribute__((preserve_access_index));
struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));
struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
} __attribute__((preserve_access_index));

#define CONNTRACK_INFO 7UL         /* the lower bits of `_nfct`: enum ip_conntrack_info */
#define CONNTRACK_IS_REPLY 3       /* this and higher values of enum ip_conntrack_info: a reply */
#define CONNTRACK_NEW 2     /* enum ip_conntrack_info: the first packet of a connection */
#define CONNTRACK_SRC_NAT (1 << 4) /* IPS_SRC_NAT, a bit of `status` in struct nf_conn */
#define CONNTRACK_DST_NAT (1 << 5) /* IPS_DST_NAT */

struct sk_buff___outgoing {
	unsigned long _nfct;
} __attribute__((preserve_access_index));

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
extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak; /* Linux 6.2 */

/* The real destination of packets with the key `wire` in one direction. Valid for ALIAS_TICKS, because
 * conntrack may give the addresses and ports to another connection later.
 */
struct nat_alias {
	__u64 stamp; /* time in ticks << 32 | number of writes; a reader compares it before and after it reads */
	__u64 wire[2];
	__u32 destination;
	__u16 port;
	__u16 from_high; /* 1: the packets come from the higher address and port of the key `wire` */
};

/* The aliases of one cache line. A hash of the key `wire` selects it. */
#define ALIAS_WAYS 2
struct nat_alias_set {
	struct nat_alias ways[ALIAS_WAYS];
};

#define ALIAS_TICKS 954 /* 1 s */
#define NAT_ALIAS_SETS 16384
#define ALIAS_BEING_WRITTEN 0xffffffffffffffffULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* aligns the values to cache lines */
	__uint(max_entries, NAT_ALIAS_SETS);
	__type(key, __u32);
	__type(value, struct nat_alias_set);
} nat_aliases SEC(".maps");

/* One bit for each hash of a destination that an alias has had. So the fast path reads the aliases first
 * only for packets to the few addresses that the node translates.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} aliased_destinations SEC(".maps");

static __always_inline struct nat_alias_set *aliases_at(__u64 hash)
{
	__u32 at = hash >> 8 & (NAT_ALIAS_SETS - 1);

	return bpf_map_lookup_elem(&nat_aliases, &at);
}

static __always_inline __u64 destination_bit(__u32 destination)
{
	return 1ULL << (destination * 0x9e3779b1U >> 26);
}

static __always_inline bool may_have_alias(__u32 destination)
{
	__u32 first = 0;
	__u64 *aliased = bpf_map_lookup_elem(&aliased_destinations, &first);

	return aliased && READ_ONCE(*aliased) & destination_bit(destination);
}

static __always_inline bool is_alias_of(const struct nat_alias *alias, __u64 addresses, __u64 rest)
{
	return alias->wire[0] == addresses && alias->wire[1] == rest;
}

/* Stores that packets with the key `wire` have the destination of `packet`, which is the real one. Replaces
 * the older alias of the cache line.
 */
static __always_inline void store_alias(const struct flow_key *wire, const struct packet *packet, __u64 now_ns)
{
	const __u64 *key = (const __u64 *)wire;
	__u64 seen, *aliased;
	struct nat_alias_set *set = aliases_at(hash_of_key(wire));
	__u32 first = 0, now = ticks_of(now_ns);
	struct nat_alias *alias, *other;

	aliased = bpf_map_lookup_elem(&aliased_destinations, &first);
	if (!set || !aliased)
		return;
	alias = &set->ways[0];
	other = &set->ways[1];
	if (is_alias_of(other, key[0], key[1]) ||
	    (!is_alias_of(alias, key[0], key[1]) && now - (__u32)(other->stamp >> 32) > now - (__u32)(alias->stamp >> 32)))
		alias = other;
	seen = READ_ONCE(alias->stamp);
	if (seen == ALIAS_BEING_WRITTEN ||
	    __sync_val_compare_and_swap(&alias->stamp, seen, ALIAS_BEING_WRITTEN) != seen)
		return;
	alias->wire[0] = key[0];
	alias->wire[1] = key[1];
	alias->destination = packet->destination;
	alias->port = packet->destination_port;
	alias->from_high = packet->wire.from_high;
	asm volatile("" ::: "memory");
	WRITE_ONCE(alias->stamp, (__u64)now << 32 | (__u32)(seen + 1));
	__sync_fetch_and_or(aliased, destination_bit(packet->wire.destination));
}

/* If a fresh alias exists for a key and the direction of the packet, stores the real destination and the
 * real ports of the packet (source port << 16 | destination port), and returns true.
 */
static __always_inline bool find_alias(const struct flow_lookup *wire, bool from_high, __u64 now_ns, __u32 *destination, __u32 *ports)
{
	struct nat_alias_set *set = aliases_at(wire->hash);
	struct nat_alias *alias;
	__u64 seen;

	if (!set)
		return false;
	alias = &set->ways[0];
	if (!is_alias_of(alias, wire->addresses, wire->rest))
		alias = &set->ways[1];
	seen = READ_ONCE(alias->stamp);
	asm volatile("" ::: "memory");
	if (seen == ALIAS_BEING_WRITTEN || ticks_of(now_ns) - (__u32)(seen >> 32) >= ALIAS_TICKS)
		return false;
	if (!is_alias_of(alias, wire->addresses, wire->rest) || alias->from_high != from_high)
		return false;
	*destination = alias->destination;
	*ports = (*ports & 0xffff0000) | alias->port;
	asm volatile("" ::: "memory");
	return READ_ONCE(alias->stamp) == seen;
}

/* Returns whether an address is in a range of `dataplane.translated`. The real destination alone decides
 * packets to such an address.
 */
static __always_inline bool is_service_address(__u32 address)
{
	for (__u32 index = 0; index < TRANSLATED_PREFIXES && index < settings.translated_prefixes; index++)
		if ((address & settings.translated[index].mask) == settings.translated[index].address)
			return true;
	return false;
}

/* Returns whether conntrack may know another destination of this packet. The guard of bridges lets no
 * translated packet pass, so a packet that a bridge switches is decided by the addresses of its header.
 */
static __always_inline bool may_be_translated(struct __sk_buff *skb, const struct active *in_force, const struct packet *packet)
{
	return settings.reads_conntrack && READ_ONCE(in_force->translates) && !packet->outgoing &&
	       packet->fragment == FRAGMENT_NONE &&
	       (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP) && !is_switched(skb);
}

/* Searches conntrack for the connection of a packet, and replaces the packet's destination and flow key by
 * the real ones. Returns false, and changes nothing, if conntrack has no such connection or does not
 * translate its destination. The real destination is the source of the opposite direction. Does not search
 * for a SYN that the copied routes forward, so that a flood of SYNs costs the same as without NAT.
 */
__noinline bool find_real_destination(struct __sk_buff *skb, struct packet *packet)
{
	struct conntrack_options options = { .netns_id = BPF_F_CURRENT_NETNS };
	struct tuple tuple = {};
	struct nf_conn *connection;
	__u32 address;
	__u16 port;

	if (!packet || !settings.reads_conntrack)
		return false;
	if (packet->protocol == IPPROTO_TCP && opens_tcp(packet) && !is_service_address(packet->destination) &&
	    is_plainly_forwarded(skb, packet))
		return false;
	options.l4proto = packet->protocol;
	tuple.source = bpf_htonl(packet->source);
	tuple.destination = bpf_htonl(packet->destination);
	tuple.source_port = bpf_htons(packet->source_port);
	tuple.destination_port = bpf_htons(packet->destination_port);
	connection = bpf_skb_ct_lookup(skb, (struct bpf_sock_tuple *)&tuple, sizeof(tuple), &options, sizeof(options));
	if (!connection)
		return false;
	if (options.dir == 0) {
		address = connection->tuplehash[1].tuple.src.u3.ip;
		port = connection->tuplehash[1].tuple.src.u.all;
	} else {
		address = connection->tuplehash[0].tuple.src.u3.ip;
		port = connection->tuplehash[0].tuple.src.u.all;
	}
	bpf_ct_release(connection);
	if (address == tuple.destination && port == tuple.destination_port)
		return false;
	packet->is_translated = true;
	packet->is_nat_reply = options.dir != 0;
	packet->prefetched.list = 0; /* the fast path has searched the rules for the destination in the header */
	packet->prefetched.has_asked = false;
	packet->wire.key = packet->place.key;
	packet->wire.from_high = packet->place.from_high;
	packet->wire.destination = packet->destination;
	packet->wire.port = packet->destination_port;
	packet->destination = bpf_ntohl(address);
	packet->destination_port = bpf_ntohs(port);
	find_flow_key(packet);
	return true;
}

/* Returns whether the policy must also allow the destination in the header of a packet that has the real one
 * from `find_real_destination`: the header has neither an address of the node nor a service address.
 */
__noinline bool has_two_destinations(struct __sk_buff *skb, struct packet *packet)
{
	bool forwarded;
	__u32 real;

	if (!packet || packet->is_nat_reply || is_service_address(packet->wire.destination))
		return false;
	real = packet->destination;
	packet->destination = packet->wire.destination;
	forwarded = !is_not_forwarded(skb, packet);
	packet->destination = real;
	return forwarded;
}

/* Reverses `find_real_destination`. */
static __always_inline void restore_destination(struct packet *packet)
{
	packet->is_translated = false;
	packet->destination = packet->wire.destination;
	packet->destination_port = packet->wire.port;
	find_flow_key(packet);
}

/* Replaces the source and the flow key of an outgoing packet by the real ones, if the packet answers a
 * connection whose destination the node has translated (DNAT). Its flow has the real ends. Without this, the
 * answer would open a foreign flow with the translated source, and all packets of the other side would pass
 * as replies of that flow. Returns false, and changes nothing, for any other packet.
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
	packet->source = bpf_ntohl(BPF_CORE_READ(connection, tuplehash[1].tuple.src.u3.ip));
	packet->source_port = bpf_ntohs(BPF_CORE_READ(connection, tuplehash[1].tuple.src.u.all));
	packet->icmp_id = packet->protocol == IPPROTO_ICMP ? packet->source_port : packet->icmp_id;
	find_flow_key(packet);
	return true;
}

/* Marks a packet that has passed by its real ends, so that the forward judge does not classify it again. */
static __always_inline enum outcome set_translated(struct __sk_buff *skb)
{
	skb->mark |= settings.nat_bit;
	set_priority(skb, PRIORITY_TRANSLATED);
	return OUTCOME_PASS;
}

/* Like `set_translated`, and stores an alias for the next packets. Does nothing without NAT, and for
 * packets that a bridge switches.
 */
__noinline enum outcome mark_translated(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	if (!packet || packet->outgoing || !in_force || !READ_ONCE(in_force->translates) || is_switched(skb))
		return OUTCOME_PASS;
	if (packet->is_translated)
		store_alias(&packet->wire.key, packet, coarse_ns());
	return set_translated(skb);
}

/* Returns whether a forwarded packet has passed the forward judge. */
static __always_inline bool has_passed_judge(const struct __sk_buff *skb)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	return skb->mark & settings.nat_bit && in_force && READ_ONCE(in_force->translates);
}

/* Returns whether a packet goes to a service address while the node translates addresses. */
static __always_inline bool is_to_service(struct __sk_buff *skb, const struct active *in_force, const struct packet *packet)
{
	return settings.translated_prefixes && !packet->outgoing && READ_ONCE(in_force->translates) &&
	       is_service_address(packet->destination) && !is_switched(skb);
}

/* Passes a packet that is addressed to the node, or to a service address. If the node translates addresses,
 * the network stack may forward the packet, so leaves it to the forward judge. The source must be valid,
 * because the judge cannot look up a route.
 */
__noinline enum outcome pass_to_node(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	if (!packet || !in_force || !READ_ONCE(in_force->translates) || is_multicast_or_broadcast(packet->destination) ||
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

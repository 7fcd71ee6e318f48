/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_ALIASES_H
#define WEIR_ALIASES_H

/* An alias records how the node translates (NAT) packets of one direction of a flow. `wire_addresses` and
 * `wire_rest` are the flow key in the header of these packets. `destination` and `port` are those after DNAT,
 * and `source` and `source_port` those after SNAT. An alias is valid for ALIAS_TICKS, because conntrack may
 * later give the addresses and ports to another connection. An alias fills one cache line.
 */
struct nat_alias {
	__u64 stamp; /* time in ticks << 32 | number of writes; a reader compares it before and after the read */
	key_addresses_t wire_addresses;
	__u64 wire_rest;
	address_t destination;
	__u16 port;
	__u8 from_high; /* 1: the packets come from the higher of the two addresses (and ports) of that key */
	__u8 is_sent;   /* 1: the ingress hook may translate the packets itself, and send them directly */
	address_t source;
	__u16 source_port;
	__u16 reserved;
	__u32 ifindex; /* the outgoing interface; 0: not known */
	__u32 unused[5];
};

#define ALIAS_TICKS 954 /* 1 s */
#define NAT_ALIASES 65536
#define ALIAS_BEING_WRITTEN 0xffffffffffffffffULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* aligns the values to cache lines */
	__uint(max_entries, NAT_ALIASES);
	__type(key, __u32);
	__type(value, struct nat_alias);
} nat_aliases SEC(".maps");

/* A filter for destinations that have an alias (a record of their translation): bit number = hash of the
 * destination before DNAT. If direct forwarding is off, the fast path searches for an alias first only if the
 * bit of the packet's destination is set.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} aliased_destinations SEC(".maps");

/* Returns the first (`second` is 0) or the second of the two entries that an alias (a record of a NAT
 * translation) with this hash can use. The two directions of a flow use different entries.
 */
static __always_inline struct nat_alias *alias_at(__u64 hash, bool from_high, __u32 second)
{
	__u32 at = (hash >> 8 & (NAT_ALIASES - 1)) ^ from_high << 1 ^ second;

	return bpf_map_lookup_elem(&nat_aliases, &at);
}

static __always_inline __u64 destination_bit(address_t destination)
{
	return 1ULL << (number_of_address(destination) * 0x9e3779b1U >> 26);
}

static __always_inline bool may_have_alias(address_t destination)
{
	__u32 first = 0;
	__u64 *aliased = bpf_map_lookup_elem(&aliased_destinations, &first);

	return aliased && READ_ONCE(*aliased) & destination_bit(destination);
}

static __always_inline bool is_alias_of(const struct nat_alias *alias, key_addresses_t addresses, __u64 rest, bool from_high)
{
	return same_key_addresses(alias->wire_addresses, addresses) && alias->wire_rest == rest && alias->from_high == from_high;
}

static __always_inline bool is_fresh_alias(const struct nat_alias *alias, __u32 now)
{
	return now - (__u32)(READ_ONCE(alias->stamp) >> 32) < ALIAS_TICKS;
}

/* Stores an alias (the translation of a packet) under the flow key in the packet's header, which is in
 * `packet->wire`. Replaces the older of the two entries that the key can use. For a packet whose destination
 * is not translated, replaces no alias that is fresh. Returns whether the ingress hook may send the packet
 * directly. Returns false for the first alias of a flow, and for the first alias after the outgoing interface
 * has changed. The network stack must handle such a packet, because it ends a masqueraded connection whose
 * interface has changed.
 */
static __always_inline bool store_alias(const struct packet *packet, __u64 now_ns)
{
	const struct flow_key *key = &packet->wire.key;
	__u64 seen, *aliased, hash = hash_of_key(&packet->wire.key);
	bool is_sent, is_known, from_high = packet->wire.from_high;
	__u32 first = 0, now = ticks_of(now_ns);
	struct nat_alias *alias = alias_at(hash, from_high, 0), *other = alias_at(hash, from_high, 1);

	aliased = bpf_map_lookup_elem(&aliased_destinations, &first);
	if (!alias || !other || !aliased)
		return false;
	if (is_alias_of(other, addresses_of_key(key), rest_of_key(key), from_high) ||
	    (!is_alias_of(alias, addresses_of_key(key), rest_of_key(key), from_high) &&
	     now - (__u32)(other->stamp >> 32) > now - (__u32)(alias->stamp >> 32)))
		alias = other;
	is_known = is_alias_of(alias, addresses_of_key(key), rest_of_key(key), from_high);
	if (!is_known && !packet->is_translated && is_fresh_alias(alias, now))
		return false;
	is_sent = packet->translated.is_sent && is_known && packet->way.ifindex && alias->ifindex == packet->way.ifindex;
	seen = READ_ONCE(alias->stamp);
	if (seen == ALIAS_BEING_WRITTEN ||
	    __sync_val_compare_and_swap(&alias->stamp, seen, ALIAS_BEING_WRITTEN) != seen)
		return false;
	alias->wire_addresses = addresses_of_key(key);
	alias->wire_rest = rest_of_key(key);
	alias->destination = packet->destination;
	alias->port = packet->destination_port;
	alias->from_high = from_high;
	alias->source = packet->translated.source;
	alias->source_port = packet->translated.ports >> 16;
	alias->is_sent = is_sent;
	alias->ifindex = packet->way.ifindex;
	asm volatile("" ::: "memory");
	WRITE_ONCE(alias->stamp, (__u64)now << 32 | (__u32)(seen + 1));
	if (packet->is_translated)
		__sync_fetch_and_or(aliased, destination_bit(packet->wire.destination));
	return is_sent;
}

enum alias_search {
	NO_ALIAS = 0,
	ALIAS_FOUND = 1,
	NO_ROOM = 2, /* other flows use both entries that the key can use */
};

/* Finds the fresh alias (recorded translation) for the flow key in a header and a direction of the flow. */
static __always_inline enum alias_search find_alias(const struct flow_lookup *wire, bool from_high, __u64 now_ns, struct translated *found)
{
	struct nat_alias *alias = alias_at(wire->hash, from_high, 0), *other;
	__u32 now = ticks_of(now_ns);
	__u64 seen;

	if (!alias)
		return NO_ALIAS;
	if (!is_alias_of(alias, wire->addresses, wire->rest, from_high)) {
		other = alias_at(wire->hash, from_high, 1);
		if (!other)
			return NO_ALIAS;
		if (!is_alias_of(other, wire->addresses, wire->rest, from_high))
			return is_fresh_alias(alias, now) && is_fresh_alias(other, now) ? NO_ROOM : NO_ALIAS;
		alias = other;
	}
	seen = READ_ONCE(alias->stamp);
	asm volatile("" ::: "memory");
	if (seen == ALIAS_BEING_WRITTEN || now - (__u32)(seen >> 32) >= ALIAS_TICKS)
		return NO_ALIAS;
	if (!is_alias_of(alias, wire->addresses, wire->rest, from_high))
		return NO_ALIAS;
	found->source = alias->source;
	found->destination = alias->destination;
	found->ports = (__u32)alias->source_port << 16 | alias->port;
	found->is_sent = alias->is_sent & 1;
	asm volatile("" ::: "memory");
	return READ_ONCE(alias->stamp) == seen ? ALIAS_FOUND : NO_ALIAS;
}

#endif

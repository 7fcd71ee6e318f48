/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FRAGMENTS_H
#define WEIR_FRAGMENTS_H

/* Time to keep the reassembly state of a datagram. 30 s is the reassembly time-out of Linux receivers
 * (net.ipv4.ipfrag_time; RFC 791).
 */
#define FRAGMENTS_NS (30 * SECOND_NS)
#define SEEN_WORDS (FRAGMENT_UNITS / 64)

static __always_inline void fragment_key(struct fragment_key *key, struct __sk_buff *skb, const struct packet *packet)
{
	key->source = packet->source;
	key->destination = packet->destination;
	key->id = packet->id;
	key->protocol = protocol_in_key(packet);
	key->outgoing = packet->outgoing;
	key->ifindex = skb->ifindex;
}

struct units {
	struct fragments *datagram;
	__u32 from;
	__u32 end; /* first unit after the fragment, in units of eight bytes */
	bool overlap;
};

static long mark_word(__u32 index, struct units *units)
{
	__u32 word = units->from / 64 + index, base = word * 64, low, high;
	__u64 mask, *seen;

	if (base >= units->end || word >= SEEN_WORDS)
		return 1;
	low = units->from > base ? units->from - base : 0;
	high = units->end - base;
	mask = ~0ULL << (low & 63);
	if (high < 64)
		mask &= (1ULL << (high & 63)) - 1;
	seen = &units->datagram->seen[word & (SEEN_WORDS - 1)];
	if (*seen & mask)
		units->overlap = true;
	*seen |= mask;
	return 0;
}

/* Adds a fragment to the reassembly state of its datagram. Returns true in three cases: the fragment overlaps
 * another fragment (RFC 5722 forbids this for IPv6), the datagram has two last fragments, or a fragment
 * reaches beyond the end of the datagram.
 */
static __always_inline bool add_fragment(struct fragments *datagram, const struct packet *packet)
{
	__u32 from = packet->fragment_field & IP_FRAGMENT_OFFSET;
	__u32 end = from + (fragment_bytes(packet) + 7) / 8;
	struct units units = { .datagram = datagram, .from = from, .end = end };

	bpf_loop(SEEN_WORDS, mark_word, &units, 0);
	if (units.overlap)
		return true;
	datagram->units += end - from;
	if (end > datagram->furthest)
		datagram->furthest = end;
	if (!(packet->fragment_field & IP_MORE_FRAGMENTS)) {
		if (datagram->last_unit)
			return true;
		datagram->last_unit = end;
	}
	return datagram->last_unit && datagram->furthest > datagram->last_unit;
}

/* Stores the ports of a first fragment that passed. `restore_ports` copies these ports to the later
 * fragments, so that they get the same verdict.
 */
__noinline int remember_fragment(struct __sk_buff *skb, const struct packet *packet)
{
	struct fragment_key key = {};
	struct fragments *datagram;
	__u32 first = 0;

	if (!packet)
		return 0;
	fragment_key(&key, skb, packet);
	datagram = bpf_map_lookup_elem(&no_fragments, &first);
	if (!datagram || bpf_map_update_elem(&fragments, &key, datagram, BPF_ANY))
		return 0;
	datagram = bpf_map_lookup_elem(&fragments, &key);
	if (!datagram)
		return 0;
	datagram->opened_ns = coarse_ns();
	datagram->packet_ports = packet->protocol == PROTOCOL_ICMP
					 ? (__u32)packet->icmp_type << 24 | (__u32)packet->icmp_code << 16 | packet->icmp_id
					 : (__u32)packet->source_port << 16 | packet->destination_port;
	store_protocol(datagram, packet);
	add_fragment(datagram, packet);
	return 0;
}

__noinline int forget_fragment(struct __sk_buff *skb, const struct packet *packet)
{
	struct fragment_key key = {};

	if (!packet)
		return 0;
	fragment_key(&key, skb, packet);
	bpf_map_delete_elem(&fragments, &key);
	return 0;
}

/* Sets the ports of a later fragment to those of the first fragment, so that both get the same verdict.
 * Returns DROP_FRAGMENT if no first fragment of the datagram has passed in the last 30 s. Returns
 * DROP_FRAGMENT_OVERLAP if `add_fragment` returns true.
 */
__noinline enum drop_reason restore_ports(struct __sk_buff *skb, struct packet *packet)
{
	struct fragment_key key = {};
	struct fragments *datagram;
	bool overlaps;
	__u32 ports;

	if (!packet)
		return DROP_FRAGMENT;
	fragment_key(&key, skb, packet);
	datagram = bpf_map_lookup_elem(&fragments, &key);
	if (!datagram || (__s64)(coarse_ns() - datagram->opened_ns) > (__s64)FRAGMENTS_NS)
		return DROP_FRAGMENT;
	ports = datagram->packet_ports;
	restore_protocol(packet, datagram);
	overlaps = add_fragment(datagram, packet);
	if (overlaps || datagram->units == datagram->last_unit)
		bpf_map_delete_elem(&fragments, &key);
	if (overlaps)
		return DROP_FRAGMENT_OVERLAP;
	if (packet->protocol == PROTOCOL_ICMP) {
		packet->icmp_type = ports >> 24;
		packet->icmp_code = ports >> 16;
		packet->icmp_id = ports;
	} else {
		packet->source_port = ports >> 16;
		packet->destination_port = ports;
	}
	return DROP_NONE;
}

#endif

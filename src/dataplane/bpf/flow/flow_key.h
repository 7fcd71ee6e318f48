/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_KEY_H
#define WEIR_FLOW_KEY_H

/* Computes the flow key of a packet, the direction of the packet, and the hash of the key. An ICMP packet
 * with a code other than 0 is not stateful: the rules decided the flow for code 0, and may treat other codes
 * differently.
 */
static __always_inline void find_flow_key(struct packet *packet)
{
	struct place *place = &packet->place;
	__u16 source_port = packet->source_port, destination_port = packet->destination_port;
	__u8 query = 0;

	place->stateful = true;
	if (packet->protocol == PROTOCOL_ICMP) {
		query = icmp_query_class(packet->icmp_type);
		place->stateful = query && packet->icmp_code == 0;
		place->icmp_reply = is_icmp_reply(packet->icmp_type);
		source_port = destination_port = packet->icmp_id;
	}
	place->from_high = is_higher_address(packet->source, packet->destination) ||
			   (same_address(packet->source, packet->destination) && source_port > destination_port);
	place->key.low_address = place->from_high ? packet->destination : packet->source;
	place->key.high_address = place->from_high ? packet->source : packet->destination;
	place->key.low_port = place->from_high ? destination_port : source_port;
	place->key.high_port = place->from_high ? source_port : destination_port;
	place->key.protocol = packet->protocol;
	place->key.use = KEY_USED;
	if (query)
		place->key.kind = query << 1 | (place->from_high != place->icmp_reply);
	place->hash = hash_of_key(&place->key);
}

/* Returns 0 for a packet from the side that opened the flow, and 1 for a reply. */
static __always_inline __u32 direction_of(const struct flow *flow, const struct packet *packet)
{
	return packet->place.from_high != ((flow->flags & FLOW_OPENED_BY_HIGH) != 0);
}

/* Sets the flow key and its hash. Returns whether the packet comes from the higher address and port. */
static __always_inline bool set_key(struct flow_lookup *flow_lookup, address_t source, address_t destination, __u32 ports, __u8 protocol)
{
	bool from_high = is_higher_address(source, destination) || (same_address(source, destination) && ports >> 16 > (ports & 0xffff));

	/* `addresses` and `rest` have the layout of struct flow_key. */
	flow_lookup->addresses = from_high ? KEY_ADDRESSES(destination, source) : KEY_ADDRESSES(source, destination);
	flow_lookup->rest = (from_high ? ports : ports << 16 | ports >> 16) | (__u64)protocol << 32 |
			    (__u64)KEY_USED << USE_SHIFT;
	flow_lookup->hash = hash_of(number_of_key_addresses(flow_lookup->addresses), flow_lookup->rest);
	return from_high;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_WIRE_DESTINATION_H
#define WEIR_WIRE_DESTINATION_H

/* Returns a packet whose destination the node translates (DNAT), so that the destination in its header is
 * another. Returns 0 for a packet without DNAT, and for a reply.
 */
static __always_inline const struct packet *translated_packet(const struct packet *packet)
{
	return packet->is_translated && !packet->is_nat_reply ? packet : 0;
}

/* Stores in an event the destination on the wire (in the header, before DNAT) of a packet that
 * `translated_packet` has returned.
 */
static __always_inline void set_wire_destination(struct event *event, const struct packet *translated)
{
	any_address_t wire;

	event->packets[1] = event->bytes[1] = 0;
	if (!translated)
		return;
	wire = translated->wire.destination;
	event->packets[1] = wire;
	event->bytes[1] = wire >> 64;
	event->flags |= EVENT_TRANSLATED;
	if (translated->protocol == PROTOCOL_ICMP)
		return;
	event->icmp_type = translated->wire.port;
	event->icmp_code = translated->wire.port >> 8;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV4_WIRE_DESTINATION_H
#define WEIR_IPV4_WIRE_DESTINATION_H

/* The destination in the header of a packet whose destination the node translates (DNAT): address << 16 |
 * port; 0: no such destination. It is one number, because it is an argument of functions that the verifier
 * checks alone. Such functions take only numbers and pointers.
 */
typedef __u64 wire_destination_t;

/* Returns 0 for a packet without DNAT, and for a reply. */
static __always_inline wire_destination_t wire_destination(const struct packet *packet)
{
	return packet->is_translated && !packet->is_nat_reply ? (__u64)packet->wire.destination << 16 | packet->wire.port : 0;
}

/* Stores in an event the destination on the wire (in the header, before DNAT). */
static __always_inline void set_wire_destination(struct event *event, wire_destination_t wire)
{
	event->packets[1] = wire >> 16;
	event->bytes[1] = wire & 0xffff;
	if (wire)
		event->flags |= EVENT_TRANSLATED;
}

#endif

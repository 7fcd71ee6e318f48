/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The fields of IPv4 fragments. */
#ifndef WEIR_IPV4_FRAGMENT_H
#define WEIR_IPV4_FRAGMENT_H

/* Returns the protocol as a part of the key of a datagram: each fragment has the protocol (RFC 791). */
static __always_inline __u8 protocol_in_key(const struct packet *packet)
{
	return packet->protocol;
}

/* Returns how many bytes of its datagram a fragment has. */
static __always_inline __u32 fragment_bytes(const struct packet *packet)
{
	return packet->payload;
}

static __always_inline void store_protocol(struct fragments *datagram, const struct packet *first)
{
	(void)datagram;
	(void)first;
}

static __always_inline void restore_protocol(struct packet *later, const struct fragments *datagram)
{
	(void)later;
	(void)datagram;
}

#endif

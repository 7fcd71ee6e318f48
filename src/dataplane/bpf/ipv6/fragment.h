/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The fields of IPv6 fragments. */
#ifndef WEIR_IPV6_FRAGMENT_H
#define WEIR_IPV6_FRAGMENT_H

/* The protocol is no part of the key of a datagram: the fragment headers of one datagram may name different
 * headers, and only that of the first fragment counts (RFC 8200, 4.5).
 */
static __always_inline __u8 protocol_in_key(const struct packet *packet)
{
	(void)packet;
	return 0;
}

/* Returns how many bytes of its datagram a fragment has, with the extension headers after the fragment
 * header.
 */
static __always_inline __u32 fragment_bytes(const struct packet *packet)
{
	return packet->payload + packet->header - packet->unfragmented;
}

static __always_inline void store_protocol(struct fragments *datagram, const struct packet *first)
{
	datagram->protocol = first->protocol;
}

static __always_inline void restore_protocol(struct packet *later, const struct fragments *datagram)
{
	later->protocol = datagram->protocol;
}

#endif

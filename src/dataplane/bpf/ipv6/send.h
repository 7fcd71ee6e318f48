/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The changes to the IPv6 header of a packet that the datapath sends directly to its next hop. */
#ifndef WEIR_IPV6_SEND_H
#define WEIR_IPV6_SEND_H

/* Returns whether the header lets a packet be sent directly: it has no extension headers, and a hop limit of
 * more than 1. The network stack must handle a packet with another header.
 */
static __always_inline bool is_sendable(const ip_header_t *ip)
{
	return is_plain_ip(ip) && ip->hop_limit > 1;
}

/* Returns the value of `skb->priority` for a forwarded packet. It is 0, because the network stack derives no
 * priority from the traffic class of IPv6.
 */
static __always_inline __u32 priority_of_forwarded(const ip_header_t *ip)
{
	(void)ip;
	return 0;
}

static __always_inline void lower_hop_limit(ip_header_t *ip)
{
	ip->hop_limit -= 1;
}

static __always_inline void set_neighbour(struct bpf_redir_neigh *next, header_address_t address)
{
	next->nh_family = IP_FAMILY;
	*(header_address_t *)next->ipv6_nh = address;
}

/* Returns the 32-bit sum of the 16-bit words of an address, for the Internet checksum (RFC 1071). */
static __always_inline __u32 sum_of_address(header_address_t address)
{
	return sum_of(sum_of(address.high >> 32, address.high), sum_of(address.low >> 32, address.low));
}

/* Translates the addresses of a header, and lowers its hop limit. The header has no checksum of its own. */
static __always_inline void translate_header(ip_header_t *ip, header_address_t source, header_address_t destination, __u32 difference)
{
	(void)difference;
	ip->saddr = source;
	ip->daddr = destination;
	lower_hop_limit(ip);
}

#endif

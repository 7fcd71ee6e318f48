/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The changes to the IPv4 header of a packet that the datapath sends directly to its next hop. */
#ifndef WEIR_IPV4_SEND_H
#define WEIR_IPV4_SEND_H

/* Returns whether the checksum of an IPv4 header without options is correct (RFC 1071). */
static __always_inline bool is_sum_right(const struct iphdr *ip)
{
	const __u32 *words = (const void *)ip;
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];

	sum = (sum >> 32) + (__u32)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum == 0xffff;
}

/* The kernel's table ip_tos2prio, packed into four bits for each value: the priority of a packet depends
 * on its type of service.
 */
#define PRIORITIES 0x4620
static __always_inline __u32 priority_of(__u8 tos)
{
	return PRIORITIES >> (tos >> 1 & 12) & 15;
}

/* Returns whether the header lets a packet be sent directly: it has no options, a TTL of more than 1, and a
 * right checksum. The network stack must reply to, or drop, a packet with another header.
 */
static __always_inline bool is_sendable(const ip_header_t *ip)
{
	return is_plain_ip(ip) && ip->ttl > 1 && is_sum_right(ip);
}

/* Returns the priority that the network stack gives to a packet when it forwards the packet. */
static __always_inline __u32 priority_of_forwarded(const ip_header_t *ip)
{
	return priority_of(ip->tos);
}

static __always_inline void lower_hop_limit(ip_header_t *ip)
{
	/* Update the checksum for a TTL that is lower by 1 (RFC 1141). */
	__u32 check = ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl -= 1;
}

static __always_inline void set_neighbour(struct bpf_redir_neigh *next, header_address_t address)
{
	next->nh_family = IP_FAMILY;
	next->ipv4_nh = address;
}

/* Returns the 32-bit sum of the 16-bit words of an address, for the Internet checksum (RFC 1071). */
static __always_inline __u32 sum_of_address(header_address_t address)
{
	return address;
}

/* Translates the addresses of a header, and lowers its TTL. `difference`: what the sum of both addresses
 * grows by.
 */
static __always_inline void translate_header(ip_header_t *ip, header_address_t source, header_address_t destination, __u32 difference)
{
	/* 0xfeff: for a TTL that is lower by 1 */
	ip->check = ~folded(sum_of(sum_of((__u16)~ip->check, difference), bpf_htons(0xfeff)));
	ip->saddr = source;
	ip->daddr = destination;
	ip->ttl -= 1;
}

#endif

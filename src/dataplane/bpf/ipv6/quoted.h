/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV6_QUOTED_H
#define WEIR_IPV6_QUOTED_H

/* Copies the addresses and ports of the packet that an ICMP error quotes to `quoted`, also behind extension
 * headers. Returns false if the error itself is a fragment, because hosts send no error of more than 1,280
 * bytes (RFC 4443, 2.4). Also returns false if the quoted packet is a later fragment or too short, because
 * the ports are then missing.
 */
__noinline bool read_quoted(struct __sk_buff *skb, const struct packet *error, struct packet *quoted)
{
	ip_header_t ip;
	__u8 l4[8];
	__u32 at;

	if (!error || !quoted || error->fragment)
		return false;
	at = ETH_HLEN + error->header + ICMP_HEADER;
	if (error->payload < ICMP_HEADER + sizeof(ip) + sizeof(l4) || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return false;
	if (*(__u8 *)&ip >> 4 != 6)
		return false;
	quoted->source = address_of_header(ip.saddr);
	quoted->destination = address_of_header(ip.daddr);
	quoted->protocol = ip.nexthdr;
	/* The error may quote the beginning of the packet only, so the length is that of the quotation. */
	if (walk_extensions(skb, quoted, at, error->payload - ICMP_HEADER) || quoted->fragment_field & IP_FRAGMENT_OFFSET)
		return false;
	if (error->payload < ICMP_HEADER + quoted->header + sizeof(l4) || bpf_skb_load_bytes(skb, at + quoted->header, l4, sizeof(l4)))
		return false;
	read_quoted_ports(quoted, quoted->protocol, l4);
	return true;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV4_QUOTED_H
#define WEIR_IPV4_QUOTED_H

/* Copies the addresses and ports of the packet that an ICMP error quotes to `quoted`. Returns false if the
 * error itself is a fragment (hosts do not send errors in fragments: RFC 1812, 4.3.2.3). Also returns false
 * if the quoted packet is a later fragment or too short, because the ports are then missing.
 */
__noinline bool read_quoted(struct __sk_buff *skb, const struct packet *error, struct packet *quoted)
{
	struct iphdr ip;
	__u8 l4[8];
	__u32 at, header;

	if (!error || !quoted || error->fragment)
		return false;
	at = ETH_HLEN + error->header + ICMP_HEADER;
	if (error->payload < ICMP_HEADER + sizeof(ip) + sizeof(l4) || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return false;
	header = ip.ihl * 4;
	if (ip.version != 4 || header < sizeof(ip) || error->payload < ICMP_HEADER + header + sizeof(l4))
		return false;
	if (ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET) || bpf_skb_load_bytes(skb, at + header, l4, sizeof(l4)))
		return false;
	quoted->source = address_of_header(ip.saddr);
	quoted->destination = address_of_header(ip.daddr);
	quoted->protocol = ip.protocol;
	quoted->header = header;
	read_quoted_ports(quoted, ip.protocol, l4);
	return true;
}

#endif

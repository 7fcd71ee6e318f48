/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The messages between the hosts and the routers of a link. */
#ifndef WEIR_IPV6_LINK_H
#define WEIR_IPV6_LINK_H

#define ROUTER_ADVERTISEMENT 134
#define DHCPV6_CLIENT_PORT 546

/* Returns whether a packet is a message of a router or of a DHCPv6 server to the hosts of its link (RFC
 * 6105, RFC 7610), also behind extension headers and in a first fragment (RFC 7113).
 */
static __always_inline bool is_of_router(const struct packet *packet)
{
	if (packet->protocol == PROTOCOL_ICMP)
		return packet->icmp_type == ROUTER_ADVERTISEMENT || packet->icmp_type == ICMP_REDIRECT;
	return packet->protocol == IPPROTO_UDP && packet->destination_port == DHCPV6_CLIENT_PORT;
}

/* Returns whether a packet comes from a port behind which no router may be. The headers of such a packet must
 * be read before it is left to the hook of the bridge, which does not know the port.
 */
static __always_inline bool may_be_of_router(struct __sk_buff *skb)
{
	return is_rogue_router(skb);
}

/* Returns whether a packet is neighbour discovery or multicast listener discovery, to which no policy
 * applies on its link. Returns false for messages of routers from a bridge port without routers. Stores the
 * addresses in `packet`.
 */
static __always_inline bool is_of_link(struct __sk_buff *skb, struct packet *packet)
{
	const struct port *port = port_of(skb);
	ip_header_t ip;
	__u8 type;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return false;
	packet->source = address_of_header(ip.saddr);
	packet->destination = address_of_header(ip.daddr);
	type = discovery_type(skb, ip.nexthdr, ip.hop_limit);
	return type && (!port || port->has_router || (type != ROUTER_ADVERTISEMENT && type != ICMP_REDIRECT));
}

#endif

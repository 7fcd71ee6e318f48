/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The packets by which hosts and routers of a link discover each other with IPv6. */
#ifndef WEIR_DISCOVERY_H
#define WEIR_DISCOVERY_H

#define NEXT_HOP_BY_HOP 0
#define NEXT_ICMPV6 58

/* Hop limit of neighbour discovery. Only a packet that no router has forwarded has this hop limit (RFC 4861).
 */
#define HOP_LIMIT_OF_DISCOVERY 255
/* Hop limit of multicast listener discovery. Routers do not forward such a packet (RFC 3810). */
#define HOP_LIMIT_OF_LISTENERS 1

#define ROUTER_SOLICITATION 133
#define ICMPV6_REDIRECT_MESSAGE 137
#define LISTENER_QUERY 130
#define LISTENER_DONE 132
#define LISTENER_REPORT_V2 143

#define HOP_BY_HOP_BYTES 8
#define SCOPE_LINK 2

#define AT_NEXT (ETH_HLEN + sizeof(struct ipv6hdr))

/* Returns the ICMPv6 type of a packet that is neighbour discovery, or multicast listener discovery behind a
 * hop-by-hop header; 0 for another packet. The datapath passes such packets whatever the settings, because
 * without them no IPv6 address of the link is reachable.
 */
static __always_inline __u8 discovery_type(struct __sk_buff *skb, __u8 next_header, __u8 hop_limit)
{
	__u8 next[HOP_BY_HOP_BYTES + 1], type;

	if (next_header == NEXT_ICMPV6 && hop_limit == HOP_LIMIT_OF_DISCOVERY) {
		if (bpf_skb_load_bytes(skb, AT_NEXT, &type, sizeof(type)))
			return 0;
		return type >= ROUTER_SOLICITATION && type <= ICMPV6_REDIRECT_MESSAGE ? type : 0;
	}
	if (next_header != NEXT_HOP_BY_HOP || hop_limit != HOP_LIMIT_OF_LISTENERS)
		return 0;
	if (bpf_skb_load_bytes(skb, AT_NEXT, next, sizeof(next)) || next[0] != NEXT_ICMPV6 || next[1] != 0)
		return 0;
	type = next[HOP_BY_HOP_BYTES];
	return (type >= LISTENER_QUERY && type <= LISTENER_DONE) || type == LISTENER_REPORT_V2 ? type : 0;
}

#endif

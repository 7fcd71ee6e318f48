/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Direct forwarding: the ingress hook sends an allowed packet to its next hop, without the network stack. */
#ifndef WEIR_SEND_H
#define WEIR_SEND_H

/* Returns whether an allowed packet can be sent directly to its next hop. Returns false in three cases:
 * - the network stack must reply to, redirect, fragment or drop the packet,
 * - the destination MAC address is not that of the node, or
 * - the packet has IP options or extension headers.
 * `bytes` is the length of the longest segment, counted from the IP header.
 */
static __always_inline bool can_be_sent(const struct __sk_buff *skb, const ip_header_t *ip, const struct way *way, __u32 bytes)
{
	return skb->pkt_type == PACKET_HOST && way->ifindex != 0 && way->ifindex != skb->ifindex && bytes <= way->mtu && is_sendable(ip);
}

/* Sends an allowed packet directly to its next hop, or leaves it to the network stack (`can_be_sent`). */
__noinline enum outcome send(struct __sk_buff *skb, const struct way *way, __u32 bytes)
{
	struct bpf_redir_neigh next = {};
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	ip_header_t *ip = data + ETH_HLEN;

	if (!way || (void *)(ip + 1) > data_end || !can_be_sent(skb, ip, way, bytes))
		return OUTCOME_PASS;
	set_priority(skb, priority_of_forwarded(ip));
	lower_hop_limit(ip);
	set_neighbour(&next, is_no_header_address(way->gateway) ? ip->daddr : way->gateway);
	return bpf_redirect_neigh(way->ifindex, &next, sizeof(next), 0);
}

/* Translates an allowed packet as the network stack would (NAT), and sends it directly to its next hop. Like
 * `send`, passes the packet unchanged to the network stack if it cannot be sent directly.
 */
__noinline enum outcome send_translated(struct __sk_buff *skb, const struct way *way, const struct translated *to)
{
	struct bpf_redir_neigh next = {};
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	ip_header_t *ip = data + ETH_HLEN;
	header_address_t source, destination;
	__u32 ports, addresses, others, at, flags = 0, length;
	__u8 *l4 = (__u8 *)(ip + 1);

	if (!way || !to || (void *)(l4 + 8) > data_end)
		return OUTCOME_PASS;
	length = 8;
	if (protocol_of(ip) == IPPROTO_TCP) {
		if ((void *)(l4 + 20) > data_end)
			return OUTCOME_PASS;
		length = (l4[12] >> 4) * 4;
	}
	if (!can_be_sent(skb, ip, way, skb->gso_size ? skb->gso_size + sizeof(*ip) + length : skb->len - ETH_HLEN))
		return OUTCOME_PASS;
	source = header_address_of(to->source);
	destination = header_address_of(to->destination);
	ports = bpf_htonl(to->ports);
	/* Differences between the new and the old values, to update the checksums (RFC 1624). */
	addresses = sum_of(sum_of(~sum_of_address(ip->saddr), sum_of_address(source)),
			   sum_of(~sum_of_address(ip->daddr), sum_of_address(destination)));
	others = sum_of(~*(__u32 *)(ip + 1), ports);
	at = ETH_HLEN + sizeof(*ip) + 16;
	if (protocol_of(ip) == IPPROTO_UDP) {
		at = ETH_HLEN + sizeof(*ip) + 6;
		flags = BPF_F_MARK_MANGLED_0;
	}
	set_priority(skb, priority_of_forwarded(ip));
	if (bpf_l4_csum_replace(skb, at, 0, addresses, flags | BPF_F_PSEUDO_HDR) ||
	    bpf_l4_csum_replace(skb, at, 0, others, flags))
		return OUTCOME_DROP;
	data = (void *)(long)skb->data;
	data_end = (void *)(long)skb->data_end;
	ip = data + ETH_HLEN;
	if ((void *)(ip + 1) + sizeof(ports) > data_end)
		return OUTCOME_DROP;
	translate_header(ip, source, destination, addresses);
	*(__u32 *)(ip + 1) = ports;
	set_neighbour(&next, is_no_header_address(way->gateway) ? destination : way->gateway);
	return bpf_redirect_neigh(way->ifindex, &next, sizeof(next), 0);
}

#endif

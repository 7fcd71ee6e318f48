/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV4_SEND_TRANSLATED_H
#define WEIR_IPV4_SEND_TRANSLATED_H

/* Adds two 32-bit sums of 16-bit words of the Internet checksum (RFC 1071). */
static __always_inline __u32 sum_of(__u32 a, __u32 b)
{
	__u64 sum = (__u64)a + b;

	return (sum >> 32) + (__u32)sum;
}

static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum >> 16) + (sum & 0xffff);
	return (sum >> 16) + (sum & 0xffff);
}

/* Translates an allowed packet as the network stack would (NAT), and sends it directly to its next hop. Like
 * `send`, passes the packet unchanged to the network stack if it cannot be sent directly.
 */
__noinline enum outcome send_translated(struct __sk_buff *skb, const struct way *way, const struct translated *to)
{
	struct bpf_redir_neigh next = { .nh_family = IP_FAMILY };
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	header_address_t source, destination;
	__u32 ports, addresses, others, at, flags = 0, length;
	__u8 *l4 = (__u8 *)(ip + 1);
	__u16 check;

	if (!way || !to || (void *)(l4 + 8) > data_end)
		return OUTCOME_PASS;
	length = 8;
	if (ip->protocol == IPPROTO_TCP) {
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
	addresses = sum_of(sum_of(~ip->saddr, source), sum_of(~ip->daddr, destination));
	others = sum_of(~*(__u32 *)(ip + 1), ports);
	check = ~folded(sum_of(sum_of((__u16)~ip->check, addresses), bpf_htons(0xfeff))); /* 0xfeff: for a TTL that is lower by 1 */
	at = ETH_HLEN + sizeof(*ip) + 16;
	if (ip->protocol == IPPROTO_UDP) {
		at = ETH_HLEN + sizeof(*ip) + 6;
		flags = BPF_F_MARK_MANGLED_0;
	}
	set_priority(skb, priority_of(ip->tos));
	if (bpf_l4_csum_replace(skb, at, 0, addresses, flags | BPF_F_PSEUDO_HDR) ||
	    bpf_l4_csum_replace(skb, at, 0, others, flags))
		return OUTCOME_DROP;
	data = (void *)(long)skb->data;
	data_end = (void *)(long)skb->data_end;
	ip = data + ETH_HLEN;
	if ((void *)(ip + 1) + sizeof(ports) > data_end)
		return OUTCOME_DROP;
	ip->saddr = source;
	ip->daddr = destination;
	ip->check = check;
	ip->ttl -= 1;
	*(__u32 *)(ip + 1) = ports;
	next.ipv4_nh = way->gateway ? way->gateway : destination;
	return bpf_redirect_neigh(way->ifindex, &next, sizeof(next), 0);
}

#endif

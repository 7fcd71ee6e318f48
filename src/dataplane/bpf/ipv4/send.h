/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
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

/* Returns whether an allowed packet can be sent directly to its next hop. Returns false in three cases:
 * - the network stack must reply to, redirect, fragment or drop the packet,
 * - the destination MAC address is not that of the node, or
 * - the packet has IP options.
 * `bytes` is the length of the longest segment, counted from the IPv4 header.
 */
static __always_inline bool can_be_sent(const struct __sk_buff *skb, const struct iphdr *ip, const struct way *way, __u32 bytes)
{
	return skb->pkt_type == PACKET_HOST && way->ifindex != 0 && way->ifindex != skb->ifindex && bytes <= way->mtu &&
	       *(__u8 *)ip == 0x45 && ip->ttl > 1 && is_sum_right(ip);
}

/* Sends an allowed packet directly to its next hop, or leaves it to the network stack (`can_be_sent`). */
__noinline enum outcome send(struct __sk_buff *skb, const struct way *way, __u32 bytes)
{
	struct bpf_redir_neigh next = { .nh_family = IP_FAMILY };
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 check;

	if (!way || (void *)(ip + 1) > data_end || !can_be_sent(skb, ip, way, bytes))
		return OUTCOME_PASS;
	set_priority(skb, priority_of(ip->tos));
	/* Update the checksum for a TTL that is lower by 1 (RFC 1141). */
	check = ip->check + bpf_htons(0x0100);
	ip->check = check + (check >= 0xffff);
	ip->ttl -= 1;
	next.ipv4_nh = way->gateway ? way->gateway : ip->daddr;
	return bpf_redirect_neigh(way->ifindex, &next, sizeof(next), 0);
}

#endif

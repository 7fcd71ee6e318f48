/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_ROUTE_H
#define WEIR_ROUTE_H

#define FAMILY_INET 2
#define PACKET_HOST 0 /* linux/if_packet.h */

static __always_inline bool is_multicast_or_broadcast(__u32 address)
{
	return address >= 0xe0000000 && (address < 0xf0000000 || address == 0xffffffff);
}

/* Where the packet would go; true where nowhere: to the node itself, a broadcast of its networks, or without a route.
 * The guard closes the door behind a packet that is forwarded all the same.
 */
__noinline bool is_to_node(struct __sk_buff *skb, struct packet *packet)
{
	struct bpf_fib_lookup fib = {};
	long found;

	if (settings.judge_all || !packet)
		return false;
	if (is_multicast_or_broadcast(packet->destination))
		return true;
	fib.family = FAMILY_INET;
	fib.tos = packet->tos;
	fib.l4_protocol = packet->protocol;
	fib.sport = bpf_htons(packet->source_port);
	fib.dport = bpf_htons(packet->destination_port);
	fib.ipv4_src = bpf_htonl(packet->source);
	fib.ipv4_dst = bpf_htonl(packet->destination);
	fib.ifindex = skb->ifindex;
	if (settings.direct)
		fib.tot_len = sizeof(struct iphdr); /* asks for the MTU */
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), settings.fib_flags);
	/* A gateway may be one of IPv6 (RFC 5549); what is for 0.0.0.0/8 the stack drops (RFC 1122, 3.2.1.3). */
	if (fib.family == FAMILY_INET && packet->destination >> 24 &&
	    (found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH)) {
		packet->way.ifindex = fib.ifindex;
		packet->way.gateway = fib.ipv4_dst;
		packet->way.mtu = fib.mtu_result > IP_BYTES_MAX ? IP_BYTES_MAX : fib.mtu_result;
	}
	return found == BPF_FIB_LKUP_RET_NOT_FWDED || found == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* D17a. A lookup for the source answers "not forwarded" where it is the node's own, a broadcast, or has no route. An
 * interface that does not forward has no lookup: what comes in there gets no further than the node, whose stack checks it.
 */
__noinline bool is_spoofed(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_fib_lookup fib = {};
	long found;

	if (settings.judge_all || !packet)
		return false;
	if (is_multicast_or_broadcast(packet->source) || packet->source >> 24 == 127 || packet->source >> 24 == 0)
		return true;
	if (settings.reverse_path == REVERSE_PATH_OFF)
		return false;
	fib.family = FAMILY_INET;
	fib.tos = packet->tos;
	fib.l4_protocol = packet->protocol;
	fib.sport = bpf_htons(packet->destination_port);
	fib.dport = bpf_htons(packet->source_port);
	fib.ipv4_src = bpf_htonl(packet->destination);
	fib.ipv4_dst = bpf_htonl(packet->source);
	fib.ifindex = skb->ifindex;
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), settings.fib_flags);
	if (found == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return false;
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH &&
	    found != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return true;
	return settings.reverse_path == REVERSE_PATH_STRICT && fib.ifindex != skb->ifindex;
}

/* User space says so for a short time, again and again: where it is gone, packets go by the stack. */
static __always_inline bool is_sent_at_once(const struct active *in_force, __u64 now_ns)
{
	return settings.direct && now_ns < READ_ONCE(in_force->direct_until_ns);
}

/* RFC 1071, of a header without options. */
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

/* The kernel's ip_tos2prio. */
#define PRIORITIES 0x4620
static __always_inline __u32 priority_of(__u8 tos)
{
	return PRIORITIES >> (tos >> 1 & 12) & 15;
}

/* Sends what passes at once. What the stack must answer, redirect, cut into pieces, drop, or leave to another station, and
 * what has options, goes by the stack. `bytes`: of its longest segment, from the IPv4 header.
 */
__noinline int send(struct __sk_buff *skb, const struct way *way, __u32 bytes)
{
	struct bpf_redir_neigh next = { .nh_family = FAMILY_INET };
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 check;

	if (!way || (void *)(ip + 1) > data_end || skb->pkt_type != PACKET_HOST || way->ifindex == 0 ||
	    way->ifindex == skb->ifindex || bytes > way->mtu || *(__u8 *)ip != 0x45 || ip->ttl <= 1 || !is_sum_right(ip))
		return TC_ACT_UNSPEC;
	skb->priority = priority_of(ip->tos);
	/* RFC 1141. */
	check = ip->check + bpf_htons(0x0100);
	ip->check = check + (check >= 0xffff);
	ip->ttl -= 1;
	next.ipv4_nh = way->gateway;
	return bpf_redirect_neigh(way->ifindex, &next, sizeof(next), 0);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_ROUTE_H
#define WEIR_ROUTE_H

#define FAMILY_INET 2

static __always_inline bool is_multicast_or_broadcast(__u32 address)
{
	return address >= 0xe0000000 && (address < 0xf0000000 || address == 0xffffffff);
}

/* Returns whether the kernel would not forward a packet: its destination is the node itself or a broadcast
 * address of its networks, or has no route. If the network stack forwards the packet in spite of this
 * result, the guard drops it.
 */
static __noinline bool is_to_node(struct __sk_buff *skb, const struct packet *packet)
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
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	return found == BPF_FIB_LKUP_RET_NOT_FWDED || found == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Returns whether the source address of a packet is forged (D17a). The kernel returns "not forwarded" for
 * a lookup of the source if the source is an address or a broadcast address of the node, or has no route.
 */
static __noinline bool is_spoofed(struct __sk_buff *skb, const struct packet *packet)
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
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH &&
	    found != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return true;
	return settings.reverse_path == REVERSE_PATH_STRICT && fib.ifindex != skb->ifindex;
}

#endif

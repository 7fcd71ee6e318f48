/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_DIVERT_DNS_H
#define WEIR_DIVERT_DNS_H

/* Returns the second lowest bit of the mark mask (`mark_mask`). A routing rule of Weir delivers packets with
 * this mark bit to the node, whatever the destination address of the packets.
 */
static __always_inline __u32 redirect_bit(void)
{
	__u32 above = settings.mark_mask & (settings.mark_mask - 1);

	return above & -above;
}

static __always_inline bool is_dns_lookup(const struct packet *packet)
{
	return settings.divert_dns && !packet->outgoing && packet->fragment == FRAGMENT_NONE &&
	       packet->destination_port == DNS_PORT &&
	       (packet->protocol == IPPROTO_UDP || packet->protocol == IPPROTO_TCP);
}

/* Counts a DNS query that the kernel would not forward and that no socket of the node receives. The kernel
 * drops such a query. Its destination has no route, or is an address of the node: `bpf_fib_lookup` returns
 * the same value for both, so the datapath cannot divert only the former.
 */
static __always_inline void count_unroutable(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_sock *socket;

	if (is_multicast_or_broadcast(packet->destination))
		return;
	socket = find_receiver(skb, packet);
	if (socket)
		bpf_sk_release(socket);
	else
		count_packet(COUNT_DNS_UNROUTABLE, skb);
}

/* Hands a DNS query to the DNS proxy, whatever server the query is addressed to. Drops the packet if no DNS
 * proxy listens, or if the source address is forged. Returns NOT_DIVERTED if the query is addressed to the
 * node itself or to an address without a route, or if a bridge switches the query. Assigns only UDP packets
 * and TCP SYNs to a socket: for later packets of a TCP connection, the kernel itself finds the connected
 * socket.
 */
__noinline enum outcome divert(struct __sk_buff *skb, struct packet *packet)
{
	struct bpf_sock_tuple storage = {};
	struct tuple *tuple = (struct tuple *)&storage;
	struct bpf_sock *socket;
	long failed;

	if (!packet)
		return OUTCOME_DROP;
	if (is_not_forwarded(skb, packet)) {
		count_unroutable(skb, packet);
		return NOT_DIVERTED;
	}
	if (is_switched(skb))
		return NOT_DIVERTED;
	if (is_spoofed(skb, packet))
		return drop(skb, packet, DROP_SPOOFED_SOURCE);
	if (packet->protocol == IPPROTO_UDP || opens_tcp(packet)) {
		tuple->source = header_address_of(packet->source);
		tuple->source_port = bpf_htons(packet->source_port);
		tuple->destination = header_address_of(DIVERT_ADDRESS);
		tuple->destination_port = bpf_htons(DNS_PORT);
		socket = packet->protocol == IPPROTO_UDP
				 ? bpf_sk_lookup_udp(skb, &storage, sizeof(*tuple), BPF_F_CURRENT_NETNS, 0)
				 : bpf_skc_lookup_tcp(skb, &storage, sizeof(*tuple), BPF_F_CURRENT_NETNS, 0);
		if (!socket)
			return drop(skb, packet, DROP_DNS_PROXY_ABSENT);
		failed = bpf_sk_assign(skb, socket, 0);
		bpf_sk_release(socket);
		if (failed)
			return drop(skb, packet, DROP_DNS_PROXY_ABSENT);
	}
	skb->mark |= redirect_bit();
	set_priority(skb, PRIORITY_REDIRECTED);
	count_packet(COUNT_DIVERTED, skb);
	return OUTCOME_PASS;
}

#endif

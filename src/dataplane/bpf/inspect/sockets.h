/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SOCKETS_H
#define WEIR_SOCKETS_H

/* The addresses and ports of a packet, in the layout of one member of the union struct bpf_sock_tuple: the
 * member of the IP family that `header_address_t` belongs to. The whole union includes IPv6 addresses, which
 * would exceed the BPF stack.
 */
struct tuple {
	header_address_t source;
	header_address_t destination;
	__be16 source_port;
	__be16 destination_port;
} __attribute__((packed, aligned(4)));

/* The kernel takes the IP family from the size: 12 bytes for IPv4, 36 for IPv6. */
_Static_assert(sizeof(struct tuple) == 2 * sizeof(header_address_t) + 4, "a tuple of struct bpf_sock_tuple");

/* Returns the socket of this node that receives TCP packets from the packet's source to `address` and
 * `port`, or 0. The caller must release the socket.
 */
static __always_inline struct bpf_sock *find_socket(struct __sk_buff *skb, const struct packet *packet, address_t address,
						    __u16 port)
{
	struct tuple tuple = {
		.source = header_address_of(packet->source),
		.destination = header_address_of(address),
		.source_port = bpf_htons(packet->source_port),
		.destination_port = bpf_htons(port),
	};

	return bpf_skc_lookup_tcp(skb, (struct bpf_sock_tuple *)&tuple, sizeof(tuple), BPF_F_CURRENT_NETNS, 0);
}

/* Returns the socket of this node that receives a UDP or TCP packet, also a listening socket; 0 if no socket
 * does. The caller must release the socket.
 */
static __always_inline struct bpf_sock *find_receiver(struct __sk_buff *skb, const struct packet *packet)
{
	struct tuple tuple = {
		.source = header_address_of(packet->source),
		.destination = header_address_of(packet->destination),
		.source_port = bpf_htons(packet->source_port),
		.destination_port = bpf_htons(packet->destination_port),
	};

	if (packet->protocol == IPPROTO_UDP)
		return bpf_sk_lookup_udp(skb, (struct bpf_sock_tuple *)&tuple, sizeof(tuple), BPF_F_CURRENT_NETNS, 0);
	if (packet->protocol == IPPROTO_TCP)
		return bpf_sk_lookup_tcp(skb, (struct bpf_sock_tuple *)&tuple, sizeof(tuple), BPF_F_CURRENT_NETNS, 0);
	return 0;
}

/* Returns whether a socket of the DNS proxy or of the service plane (TLS and HTTP inspection) receives this
 * packet. These sockets trust the source address of a packet, so the caller must drop a packet with a forged
 * source.
 */
__noinline bool is_for_own_socket(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_sock *socket;
	bool own;

	if (!packet || packet->fragment == FRAGMENT_LATER)
		return false;
	socket = find_receiver(skb, packet);
	if (!socket)
		return false;
	/* Without an exempt bit, the datapath cannot distinguish Weir's sockets from other sockets of the
	 * node. It then treats every socket as one of Weir's sockets.
	 */
	own = !settings.exempt_bit || socket->mark & settings.exempt_bit;
	bpf_sk_release(socket);
	return own;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SOCKETS_H
#define WEIR_SOCKETS_H

/* The part of struct bpf_sock_tuple that is for IPv4: the whole does not fit on the stack. */
struct tuple {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
};

/* The socket that gets what is sent from the packet's source to there; to be released. */
static __always_inline struct bpf_sock *find_socket(struct __sk_buff *skb, const struct packet *packet, __u32 address,
						    __u16 port)
{
	struct tuple tuple = {
		.source = bpf_htonl(packet->source),
		.destination = bpf_htonl(address),
		.source_port = bpf_htons(packet->source_port),
		.destination_port = bpf_htons(port),
	};

	return bpf_skc_lookup_tcp(skb, (struct bpf_sock_tuple *)&tuple, sizeof(tuple), BPF_F_CURRENT_NETNS, 0);
}

#endif

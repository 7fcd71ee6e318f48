/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_START_H
#define WEIR_SPLICE_START_H

/* Subsets of kernel structs: CO-RE relocates the field offsets to those of the running kernel. */
struct rb_node;
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct rb_root {
	struct rb_node *rb_node;
};
struct tcp_options_received {
	__u32 ts_recent;
};
struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_una;
	__u32 write_seq;
	__u32 snd_wnd;
	__u32 tsoffset;
	struct tcp_options_received rx_opt;
	struct rb_root out_of_order_queue;
};
#pragma clang attribute pop

/* The state of one of the two TCP connections of the service plane (TLS and HTTP inspection), read from its
 * kernel socket.
 */
struct endpoint {
	__u32 received; /* next sequence number that the socket expects from the peer */
	__u32 sent;     /* sequence number of the next byte that the process writes */
	__u32 window;   /* receive window of the peer, in bytes */
	__u32 stamp;    /* last TCP time stamp that the peer sent */
	__u32 clock;    /* current TCP time stamp of this socket */
	/* no received data is unread, all sent data is acknowledged, and no segment is out of order */
	bool rests;
};

#define NS_PER_MS 1000000

static __always_inline void read_endpoint(struct bpf_sock *socket, struct endpoint *endpoint)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(socket);

	endpoint->rests = false;
	if (!tcp)
		return;
	endpoint->received = tcp->rcv_nxt;
	endpoint->sent = tcp->write_seq;
	endpoint->window = tcp->snd_wnd;
	endpoint->stamp = tcp->rx_opt.ts_recent;
	endpoint->clock = bpf_ktime_get_ns() / NS_PER_MS + tcp->tsoffset;
	endpoint->rests = socket->state == BPF_TCP_ESTABLISHED && tcp->copied_seq == endpoint->received && tcp->snd_una == endpoint->sent &&
			  !tcp->out_of_order_queue.rb_node;
}

/* Sets the translation for one direction: packets arrive on TCP connection `from`, and leave on TCP
 * connection `to`.
 */
static __always_inline void set_translation(struct join *join, const struct endpoint *from, const struct endpoint *to)
{
	join->sequence = to->sent - from->received;
	join->acknowledgment = to->received - from->sent;
	join->time = to->clock - from->stamp;
	join->echo = to->stamp - from->clock;
	join->next = from->received;
	join->acknowledged = from->sent;
	join->window = from->window;
	join->stamp = from->stamp;
	join->last_seen = ticks_of(bpf_ktime_get_ns());
}

/* Finds the node's two sockets, to the client and to the server, and copies their TCP state into `client` and
 * `server`. Returns false if one of the two sockets does not exist.
 */
static __always_inline bool read_both_endpoints(struct __sk_buff *skb, struct packet *packet, struct endpoint *client, struct endpoint *server)
{
	struct bpf_sock *socket = find_socket(skb, packet, packet->destination, packet->destination_port);

	if (!socket)
		return false;
	read_endpoint(socket, client);
	bpf_sk_release(socket);
	swap_ends(packet);
	socket = find_socket(skb, packet, packet->destination, packet->destination_port);
	swap_ends(packet);
	if (!socket)
		return false;
	read_endpoint(socket, server);
	bpf_sk_release(socket);
	return true;
}

/* If both TCP connections of an inspected connection are at rest (no data is unread or unacknowledged), makes
 * the datapath drop all their packets. `skb` is a packet from the client. Packets pass again after user space
 * has closed its two sockets and has set the state JOINED. A spliced connection is always at rest.
 *
 * If a socket receives data on another CPU at this moment, `may_send` drops the acknowledgment of that data,
 * so the peer sends the data again. Returns a value of enum joined.
 */
static __noinline enum joined start_splice(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);
	struct packet packet = {}; /* not in the per-CPU packet buffer, which a packet that this CPU handles meanwhile could overwrite */
	struct join *forward, *backward;
	struct endpoint client = {}, server = {};

	if (parse(skb, &packet) || packet.protocol != IPPROTO_TCP)
		return JOIN_GONE;
	forward = join_of(&packet);
	backward = reverse_join_of(&packet);
	if (forward && backward && forward->state == JOINED) {
		forward->state = backward->state = JOIN_HELD;
		return JOIN_AT_REST;
	}
	if (!in_force || !is_sent_directly(in_force, coarse_ns()))
		return JOIN_UNABLE;
	if (!forward || !backward || !read_both_endpoints(skb, &packet, &client, &server))
		return JOIN_GONE;
	if (client.rests && server.rests) {
		/* Read both sockets again after the state is JOIN_HELD. A packet that passed before the change of state
		 * may have reached a socket after the first read.
		 */
		if (__sync_val_compare_and_swap(&forward->state, JOIN_QUIET, JOIN_HELD) != JOIN_QUIET)
			return JOIN_GONE;
		__sync_lock_test_and_set(&backward->state, JOIN_HELD);
		if (!read_both_endpoints(skb, &packet, &client, &server))
			client.rests = false;
	}
	set_translation(forward, &client, &server);
	set_translation(backward, &server, &client);
	if (client.rests && server.rests)
		return JOIN_AT_REST;
	forward->state = backward->state = JOIN_QUIET;
	return JOIN_BUSY;
}

SEC("tc")
int weir_join(struct __sk_buff *skb)
{
	return start_splice(skb);
}

#endif

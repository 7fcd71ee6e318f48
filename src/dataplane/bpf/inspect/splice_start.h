/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_START_H
#define WEIR_SPLICE_START_H

/* Fields of kernel structs; CO-RE relocates their offsets. */
struct rb_node;
struct rb_root {
	struct rb_node *rb_node;
} __attribute__((preserve_access_index));
struct tcp_options_received {
	__u32 ts_recent;
} __attribute__((preserve_access_index));
struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_una;
	__u32 write_seq;
	__u32 snd_wnd;
	__u32 tsoffset;
	struct tcp_options_received rx_opt;
	struct rb_root out_of_order_queue;
} __attribute__((preserve_access_index));

/* One of the two connections, as the socket of the service plane has it. */
struct leg {
	__u32 received; /* next sequence number that is expected */
	__u32 sent;     /* next sequence number that is sent */
	__u32 window;   /* receive window of the peer, in bytes */
	__u32 stamp;    /* last TCP time stamp of the peer */
	__u32 clock;    /* time stamp clock of this socket, now */
	bool rests;     /* all received data was read, and all sent data was acknowledged */
};

#define NS_PER_MS 1000000

static __always_inline void look_at(struct bpf_sock *socket, struct leg *leg)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(socket);

	leg->rests = false;
	if (!tcp)
		return;
	leg->received = tcp->rcv_nxt;
	leg->sent = tcp->write_seq;
	leg->window = tcp->snd_wnd;
	leg->stamp = tcp->rx_opt.ts_recent;
	leg->clock = bpf_ktime_get_ns() / NS_PER_MS + tcp->tsoffset;
	leg->rests = socket->state == BPF_TCP_ESTABLISHED && tcp->copied_seq == leg->received && tcp->snd_una == leg->sent &&
		     !tcp->out_of_order_queue.rb_node;
}

/* Sets the translation of one direction: packets come in by connection `from` and leave by connection `to`.
 */
static __always_inline void direct(struct join *join, const struct leg *from, const struct leg *to)
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

/* Returns false if one of the sockets does not exist. */
static __always_inline bool look_at_both(struct __sk_buff *skb, struct packet *packet, struct leg *client, struct leg *server)
{
	struct bpf_sock *socket = find_socket(skb, packet, packet->destination, packet->destination_port);

	if (!socket)
		return false;
	look_at(socket, client);
	bpf_sk_release(socket);
	turn_round(packet);
	socket = find_socket(skb, packet, packet->destination, packet->destination_port);
	turn_round(packet);
	if (!socket)
		return false;
	look_at(socket, server);
	bpf_sk_release(socket);
	return true;
}

/* Holds both connections of a client packet, if both are at rest. From then on no packet passes in either
 * direction until user space, which closes its sockets first, activates the entries. If a socket receives
 * data on another CPU at this moment, its acknowledgment is dropped (`may_say`), so the peer sends the data
 * again. Returns enum joined.
 */
static __noinline enum joined join_now(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);
	struct packet packet = {}; /* on the stack: a packet on this CPU may use the shared buffer meanwhile */
	struct join *forward, *backward;
	struct leg client = {}, server = {};

	if (!in_force || !is_sent_at_once(in_force, coarse_ns()))
		return JOIN_UNABLE;
	if (parse(skb, &packet) || packet.protocol != IPPROTO_TCP)
		return JOIN_GONE;
	forward = join_of(&packet);
	backward = answers_to(&packet);
	if (!forward || !backward || !look_at_both(skb, &packet, &client, &server))
		return JOIN_GONE;
	if (client.rests && server.rests) {
		/* Packets that passed before this moment are in the sockets, or are not acknowledged. So
		 * look again.
		 */
		if (__sync_val_compare_and_swap(&forward->state, JOIN_QUIET, JOIN_HELD) != JOIN_QUIET)
			return JOIN_GONE;
		__sync_lock_test_and_set(&backward->state, JOIN_HELD);
		if (!look_at_both(skb, &packet, &client, &server))
			client.rests = false;
	}
	direct(forward, &client, &server);
	direct(backward, &server, &client);
	if (client.rests && server.rests)
		return JOIN_AT_REST;
	forward->state = backward->state = JOIN_QUIET;
	return JOIN_BUSY;
}

SEC("tc")
int weir_join(struct __sk_buff *skb)
{
	return join_now(skb);
}

#endif

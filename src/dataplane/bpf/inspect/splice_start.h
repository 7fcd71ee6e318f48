/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_START_H
#define WEIR_SPLICE_START_H

/* As in the kernel, wherever its fields stand there. */
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

/* One of the two connections, as the service plane's socket has it. */
struct leg {
	__u32 received; /* next number that is expected */
	__u32 sent;     /* next number that is sent */
	__u32 window;   /* of the peer, in bytes */
	__u32 stamp;    /* the peer's last */
	__u32 clock;    /* its own, now */
	bool rests;     /* all that came was read, and all that was sent has arrived */
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

/* From here the packets of one side go on: `from` is the connection that they come by, `to` the one that they go by. */
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

/* False: one of them is not there. */
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

/* Holds both connections that a packet of the client would be of, where both are at rest: from then on no packet passes
 * either way until user space, which closes its sockets first, opens what it finds in the entries. What a socket took in
 * on another CPU at this moment it acknowledges to nobody (`may_say`), so that it is sent again. Answers `enum joined`.
 */
static __noinline enum joined join_now(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);
	struct packet packet = {}; /* its own: another may come in on this CPU */
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
		/* What passed before this is in the sockets, or will not be answered. */
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

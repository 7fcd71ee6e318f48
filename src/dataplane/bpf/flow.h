/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#define EEXIST 17
#define AS_REPLY 0x80
#define END_HALF 1
#define END_IN_PROCESS 2 /* where packets may come in between */

/* Signed, since another CPU may have stored a later time than the caller read. */
static __always_inline bool is_expired(const struct flow *flow, __u32 now)
{
	return (__s32)(now - flow->last_seen) > (__s32)settings.timeouts[flow->state & (FLOW_STATES - 1)];
}

/* Class of an ICMP query or its reply (RFC 792, RFC 950), 0 for everything else. */
static __always_inline __u8 icmp_query_class(__u8 type)
{
	if (type == ICMP_ECHO_REQUEST || type == ICMP_ECHO_REPLY)
		return 1;
	if (type >= 13 && type <= 18)
		return 2 + ((type - 13) >> 1);
	return 0;
}

static __always_inline bool is_icmp_reply(__u8 type)
{
	return type == ICMP_ECHO_REPLY || type == 14 || type == 16 || type == 18;
}

/* A query with a code is not the one that the flow's verdict was given for, so it is judged alone. */
static __always_inline void find_place(struct place *place, const struct packet *packet)
{
	__u16 source_port = packet->source_port, destination_port = packet->destination_port;
	__u8 query = 0;

	place->stateful = true;
	if (packet->protocol == IPPROTO_ICMP) {
		query = icmp_query_class(packet->icmp_type);
		place->stateful = query && packet->icmp_code == 0;
		place->icmp_reply = is_icmp_reply(packet->icmp_type);
		source_port = destination_port = packet->icmp_id;
	}
	place->from_high = packet->source > packet->destination ||
			   (packet->source == packet->destination && source_port > destination_port);
	place->key.low_address = place->from_high ? packet->destination : packet->source;
	place->key.high_address = place->from_high ? packet->source : packet->destination;
	place->key.low_port = place->from_high ? destination_port : source_port;
	place->key.high_port = place->from_high ? source_port : destination_port;
	place->key.protocol = packet->protocol;
	if (query)
		place->key.kind = query << 1 | (place->from_high != place->icmp_reply);
}

/* 0 for packets from the side that opened the flow, 1 for replies. */
static __always_inline __u32 direction_of(const struct flow *flow, const struct place *place)
{
	return place->from_high != ((flow->flags & FLOW_OPENED_BY_HIGH) != 0);
}

/* Adds what the flow carried since the last time to its rule. The exchanges make every packet count once, whoever
 * folds at the same time.
 */
static __noinline void fold_flow(struct flow *flow, __u64 now_ns)
{
	__u64 packets = 0, bytes = 0;
	__u32 idle;

	if (!flow)
		return;
#pragma unroll
	for (int side = 0; side < 2; side++) {
		__u32 seen = READ_ONCE(flow->packets[side]);
		__u64 carried = READ_ONCE(flow->bytes[side]);
		/* Less than nothing where somebody else folded what came after `seen`. */
		__s64 more = (__s32)(seen - __sync_lock_test_and_set(&flow->folded_packets[side], seen));

		__sync_fetch_and_add(&flow->folded_total[side], more);
		packets += more;
		bytes += carried - __sync_lock_test_and_set(&flow->folded_bytes[side], carried);
	}
	if (!packets)
		return;
	idle = ticks_of(now_ns) - flow->last_seen;
	add_hit(flow->hit, flow->hit_check, packets, bytes, now_ns - ((__u64)idle << TICK_SHIFT));
}

static __noinline void end_flow(struct flow *flow, const struct flow_key *key, __u32 how, __u64 now_ns)
{
	__u32 place = how & END_IN_PROCESS ? 1 : 0;
	struct flow *ended = bpf_map_lookup_elem(&scratch, &place);
	bool half = how & END_HALF;

	if (!flow || !key || !ended)
		return;
	if (!half)
		drop_cached(flow);
	fold_flow(flow, now_ns);
	/* Another flow may get its memory as soon as it is deleted. */
	*ended = *flow;
	if (half) {
		if (bpf_map_delete_elem(&half_open, key) == 0)
			tell_flow(ended, EVENT_FLOW_ENDED, now_ns);
	} else if (bpf_map_delete_elem(&flows, key) == 0) {
		count(COUNT_FLOWS_CLOSED);
		tell_flow(ended, EVENT_FLOW_ENDED, now_ns);
	}
}

/* Makes a half-open flow an established one. False where the table is full. */
static __noinline bool confirm_flow(struct flow *flow, const struct flow_key *key)
{
	__u32 first = 0;
	struct flow *confirmed = bpf_map_lookup_elem(&scratch, &first);
	long failed;

	if (!flow || !key || !confirmed)
		return false;
	*confirmed = *flow;
	asm volatile("" ::: "memory");
	/* Evicted meanwhile, and its memory used again: what was copied may be half of each. */
	if (!same_key(&flow->key, key))
		return true;
	failed = bpf_map_update_elem(&flows, key, confirmed, BPF_NOEXIST);
	if (failed == 0)
		count(COUNT_FLOWS_OPENED);
	else if (failed != -EEXIST)
		return false;
	bpf_map_delete_elem(&half_open, key);
	return true;
}

/* Follows TCP (RFC 9293, fig. 5). `half`: the handshake is not over. Answers whether it is now. */
static __always_inline bool follow_tcp(struct flow *flow, __u8 tcp_flags, __u32 side, bool half)
{
	__u8 state = flow->state, flags = flow->flags;
	bool confirmed = false;

	if (!half && state == FLOW_TCP_ESTABLISHED && !(tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)))
		return false;
	if (tcp_flags & TCP_RST) {
		if (state == FLOW_TCP_CLOSING)
			return false;
		flow->flags = side ? flags | FLOW_RESET_BY_REPLY : flags & ~FLOW_RESET_BY_REPLY;
		flow->state = FLOW_TCP_RESET;
		return false;
	}
	if (half) {
		/* The answer is a SYN, with an ACK or crossing ours, whatever somebody has reset in between; what the opener then
		 * acknowledges is established. What was found in the middle of its life is, once both sides were seen.
		 */
		if (side && tcp_flags & TCP_SYN && (state == FLOW_TCP_SYN_SENT || state == FLOW_TCP_RESET))
			flow->state = FLOW_TCP_SYN_RECEIVED;
		else if (!side && tcp_flags & TCP_ACK && state == FLOW_TCP_SYN_RECEIVED)
			confirmed = true;
		else if (state == FLOW_TCP_ESTABLISHED || state == FLOW_TCP_HALF_CLOSED)
			confirmed = flow->packets[side & 1] == 0;
	} else if (state == FLOW_TCP_RESET && tcp_flags & TCP_ACK && !(tcp_flags & TCP_SYN) &&
		   side == ((flags & FLOW_RESET_BY_REPLY) != 0)) {
		/* Who goes on has not reset: somebody else forged that. */
		flow->state = flags & (FLOW_FIN | FLOW_FIN << 1) ? FLOW_TCP_HALF_CLOSED : FLOW_TCP_ESTABLISHED;
	}
	if (tcp_flags & TCP_FIN)
		flags = flow->flags |= FLOW_FIN << side;
	if ((!half || confirmed) && flow->state != FLOW_TCP_RESET) {
		bool both = (flags & (FLOW_FIN | FLOW_FIN << 1)) == (FLOW_FIN | FLOW_FIN << 1);

		if (both)
			flow->state = FLOW_TCP_CLOSING;
		else if (flags & (FLOW_FIN | FLOW_FIN << 1))
			flow->state = FLOW_TCP_HALF_CLOSED;
		else if (confirmed)
			flow->state = FLOW_TCP_ESTABLISHED;
	}
	return confirmed;
}

/* Other protocols are confirmed by the first reply. */
static __always_inline bool follow_other(struct flow *flow, __u32 side, bool half)
{
	if (!half || !side)
		return false;
	flow->state = flow->state == FLOW_UDP_OPENED    ? FLOW_UDP_REPLIED
		      : flow->state == FLOW_ICMP_OPENED ? FLOW_ICMP_REPLIED
							: FLOW_OTHER_REPLIED;
	return true;
}

/* Accounts for a packet of the flow. False where it would establish the flow, and the table is full. */
static __always_inline bool follow_flow(struct __sk_buff *skb, struct flow *flow, const struct flow_key *key,
					const struct packet *packet, __u32 direction, bool half, __u32 now)
{
	__u32 side = direction & 1;
	__u8 state = flow->state;
	bool confirmed;

	confirmed = packet->protocol == IPPROTO_TCP ? follow_tcp(flow, packet->tcp_flags, side, half)
						    : follow_other(flow, side, half);
	flow->last_seen = now;
	__sync_fetch_and_add(&flow->packets[side], packets_of(skb));
	__sync_fetch_and_add(&flow->bytes[side], skb->len);
	if (!confirmed || confirm_flow(flow, key))
		return true;
	__sync_fetch_and_add(&flow->packets[side], -packets_of(skb));
	__sync_fetch_and_add(&flow->bytes[side], -(__u64)skb->len);
	flow->state = state;
	return false;
}

static __noinline enum flow_state opening_state(const struct packet *packet)
{
	if (!packet)
		return FLOW_OTHER_OPENED;
	switch (packet->protocol) {
	case IPPROTO_TCP:
		/* Picked up in the middle of its life: nobody knows whether it was answered, so it gets the long time. */
		return packet->tcp_flags & TCP_RST   ? FLOW_TCP_RESET
		       : packet->tcp_flags & TCP_FIN ? FLOW_TCP_HALF_CLOSED
		       : (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN ? FLOW_TCP_SYN_SENT
									      : FLOW_TCP_ESTABLISHED;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
		return FLOW_UDP_OPENED;
	case IPPROTO_ICMP:
		return FLOW_ICMP_OPENED;
	default:
		return FLOW_OTHER_OPENED;
	}
}

/* DROP_NONE, or why the packet must not pass. `judged` is as in tell_packet; `how`: FLOW_FOREIGN, or AS_REPLY where
 * the packet is taken for one of the side that was asked. Two packets that open one flow on two CPUs both pass.
 */
static __noinline enum drop_reason open_flow(struct __sk_buff *skb, const struct place *place,
					     const struct packet *packet, __u64 judged, __u8 how)
{
	bool as_reply = how & AS_REPLY;
	__u32 active_word = judged >> 32, bytes = skb->len, packets = packets_of(skb);
	struct hit_ref ref = {};
	struct flow *flow;
	__u32 first = 0;
	long failed;

	flow = bpf_map_lookup_elem(&scratch, &first);
	if (!place || !packet || !flow)
		return DROP_MALFORMED;
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->key = place->key;
	flow->opened_ns = bpf_ktime_get_coarse_ns();
	flow->last_seen = ticks_of(flow->opened_ns);
	flow->flags = (how & FLOW_FOREIGN) | (place->from_high != as_reply ? FLOW_OPENED_BY_HIGH : 0);
	flow->state = opening_state(packet);
	if (flow->state == FLOW_TCP_HALF_CLOSED)
		flow->flags |= as_reply ? FLOW_FIN << 1 : FLOW_FIN;
	if (flow->state == FLOW_TCP_RESET && as_reply)
		flow->flags |= FLOW_RESET_BY_REPLY;
	if (as_reply) {
		flow->ifindex[1] = packet->outgoing ? 0 : skb->ifindex;
		flow->packets[1] = flow->folded_packets[1] = packets;
		flow->bytes[1] = flow->folded_bytes[1] = bytes;
		flow->folded_total[1] = packets;
	} else {
		flow->ifindex[0] = packet->outgoing ? 0 : skb->ifindex;
		flow->packets[0] = flow->folded_packets[0] = packets;
		flow->bytes[0] = flow->folded_bytes[0] = bytes;
		flow->folded_total[0] = packets;
	}
	if (!(how & FLOW_FOREIGN)) {
		ref = hit_of(active_word, judged);
		flow->judgement = (__u64)(active_word >> 1) << 32 | (__u32)judged;
	}
	flow->hit = ref.hit;
	flow->hit_check = ref.check;
	failed = bpf_map_update_elem(&half_open, &place->key, flow, BPF_NOEXIST);
	if (failed == 0)
		count(COUNT_HALF_OPENED);
	else if (failed != -EEXIST)
		return DROP_FLOW_TABLE_FULL;
	add_hit(ref.hit, ref.check, packets, bytes, flow->opened_ns);
	if (failed == 0)
		tell_flow(flow, EVENT_FLOW_OPENED, flow->opened_ns);
	return DROP_NONE;
}

#endif

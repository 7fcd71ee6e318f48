/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_TRACK_STATE_H
#define WEIR_TRACK_STATE_H

/* Bit mask of the states that only a half-open flow has. A half-open flow in another state began in the
 * middle of a connection, or was suspended.
 */
#define OPENING_STATES                                                                \
	(1 << FLOW_TCP_SYN_SENT | 1 << FLOW_TCP_SYN_RECEIVED | 1 << FLOW_UDP_OPENED | \
	 1 << FLOW_ICMP_OPENED | 1 << FLOW_OTHER_OPENED)

#define BOTH_FINS (FLOW_FIN | FLOW_FIN << 1)

/* Sets flags of a flow, and returns the resulting flags. Atomic, because two CPUs may handle packets of
 * both sides at the same time.
 */
static __always_inline __u8 set_flags(struct flow *flow, __u8 more)
{
	return __sync_fetch_and_or(state_and_flags(flow), (__u32)more << 8) >> 8 | more;
}

static __always_inline __u8 state_after_fins(__u8 flags)
{
	return (flags & BOTH_FINS) == BOTH_FINS ? FLOW_TCP_CLOSING : FLOW_TCP_HALF_CLOSED;
}

/* Returns the state of an established TCP flow in which FINs were seen according to these flags. */
static __always_inline __u8 state_by_fins(__u8 flags)
{
	return flags & BOTH_FINS ? state_after_fins(flags) : FLOW_TCP_ESTABLISHED;
}

/* Clears the FIN of a side that sends data after its FIN. Either the FIN was forged, or the data is a
 * retransmission, because its acknowledgment was lost. After a retransmission, the receiver acknowledges the
 * FIN again, and the FIN then counts again. Returns the resulting flags.
 */
static __always_inline __u8 take_back_fin(struct flow *flow, __u32 side)
{
	__u16 next = READ_ONCE(flow->tcp_numbers[!side]);

	if (next > NO_RESET)
		await_acknowledgment(flow, side, next);
	return __sync_fetch_and_and(state_and_flags(flow), ~((__u32)FLOW_FIN << side << 8)) >> 8 & ~(FLOW_FIN << side);
}

#define BY_REPLY 1
#define OF_HALF_OPEN 2

/* Updates the state of a TCP flow by the TCP flags of a packet (RFC 9293, fig. 5). `how`: the bits BY_REPLY
 * and OF_HALF_OPEN. Not inlined, because the callers would exceed the BPF stack.
 */
__noinline int follow_tcp(struct flow *flow, __u32 slot, const struct packet *packet, __u32 how, __u64 now_ns)
{
	bool confirmed = false, ends = false, fits = false, asked, half = how & OF_HALF_OPEN;
	__u32 side = how & BY_REPLY;
	__u8 state, flags, tcp_flags;

	if (!flow || !packet)
		return 0;
	state = flow->state;
	flags = flow->flags;
	tcp_flags = packet->tcp_flags;
	asked = READ_ONCE(flow->tcp_numbers[side]) & FIN_PENDING;
	if ((tcp_flags & (TCP_ACK | TCP_RST)) == TCP_ACK)
		ends = acknowledge(flow, side, number_of(packet->acknowledgment));
	if (!half && !ends && state == FLOW_TCP_ESTABLISHED && !(tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)))
		return 0;
	if (tcp_flags & TCP_RST) {
		if (state == FLOW_TCP_CLOSING)
			return 0;
		if (side)
			set_flags(flow, FLOW_RESET_BY_REPLY);
		else
			__sync_fetch_and_and(state_and_flags(flow), ~(FLOW_RESET_BY_REPLY << 8));
		flow->state = FLOW_TCP_RESET;
		return 0;
	}
	if (half) {
		/* A reply with SYN changes the state to SYN_RECEIVED, even after a RST, which may be forged. The ACK
		 * of the opener then establishes the flow. A flow that began in the middle of a connection becomes
		 * established when the datapath has seen packets of both sides.
		 */
		if (side && tcp_flags & TCP_SYN && (state == FLOW_TCP_SYN_SENT || state == FLOW_TCP_RESET)) {
			flow->state = FLOW_TCP_SYN_RECEIVED;
			/* The next packet of the opener acknowledges this SYN, so store this number now. */
			WRITE_ONCE(flow->tcp_numbers[0], number_of(packet->sequence + 1));
		} else if (!side && tcp_flags & TCP_ACK && state == FLOW_TCP_SYN_RECEIVED)
			confirmed = true;
		else if (state == FLOW_TCP_ESTABLISHED || state == FLOW_TCP_HALF_CLOSED)
			confirmed = flow->packets[!side] != 0;
		confirmed = confirmed && confirm_flow(slot, &packet->place.key, now_ns);
	} else if (state == FLOW_TCP_RESET && tcp_flags & TCP_ACK && !(tcp_flags & TCP_SYN) &&
		   side == ((flags & FLOW_RESET_BY_REPLY) != 0)) {
		/* The side that seemed to send the RST still sends an ACK, so the RST was forged. Restore the state
		 * before the RST.
		 */
		flow->state = state_by_fins(flags);
	}
	if (ends)
		flags = set_flags(flow, FLOW_FIN << !side);
	if (!(flags & FLOW_FIN << side)) {
		if (tcp_flags & TCP_FIN) {
			fits = READ_ONCE(flow->tcp_numbers[!side]) == number_of(packet->sequence);
			await_acknowledgment(flow, side, packet->sequence + packet->data + 1);
		}
	} else if (!half && packet->data && !(tcp_flags & TCP_FIN)) {
		flags = take_back_fin(flow, side);
	}
	if ((half && !confirmed) || flow->state == FLOW_TCP_RESET)
		return 0;
	/* A FIN normally counts only when its receiver acknowledges it. But the receiver may be gone. So a
	 * FIN at the last number that the receiver has acknowledged half closes the flow at once, until the
	 * receiver sends its next packet. A forger would have to guess that number.
	 */
	if (!(flags & BOTH_FINS) && (fits || (flow->state == FLOW_TCP_HALF_CLOSED && !asked &&
					      READ_ONCE(flow->tcp_numbers[!side]) & FIN_PENDING)))
		flow->state = FLOW_TCP_HALF_CLOSED;
	else
		flow->state = state_by_fins(flags);
	return 0;
}

/* Updates the state of a flow of a protocol other than TCP. The first reply establishes such a flow. */
static __always_inline void follow_other(struct flow *flow, __u32 slot, const struct packet *packet, __u32 side, bool half,
					 __u64 now_ns)
{
	if (!half || !side || !confirm_flow(slot, &packet->place.key, now_ns))
		return;
	/* A suspended flow (denied by a later policy) that has resumed is half open, but has the state of an
	 * established flow.
	 */
	flow->state = flow->state == FLOW_UDP_OPENED     ? FLOW_UDP_REPLIED
		      : flow->state == FLOW_ICMP_OPENED  ? FLOW_ICMP_REPLIED
		      : flow->state == FLOW_OTHER_OPENED ? FLOW_OTHER_REPLIED
							 : flow->state;
}

/* Updates the state, the counters and the time of a flow by a packet. */
static __always_inline void follow_flow(struct __sk_buff *skb, struct flow *flow, __u32 slot, const struct packet *packet,
					__u32 direction, __u64 now_ns)
{
	__u32 side = direction & 1, bytes = READ_ONCE(flow->bytes[side]);
	bool half = slot & HALF_OPEN || OPENING_STATES >> (flow->state & (FLOW_STATES - 1)) & 1;

	if (packet->protocol == IPPROTO_TCP)
		follow_tcp(flow, slot, packet, side | (half ? OF_HALF_OPEN : 0), now_ns);
	else
		follow_other(flow, slot, packet, side, half, now_ns);
	flow->last_seen = ticks_of(now_ns);
	__sync_fetch_and_add(&flow->packets[side], packets_of(skb));
	__sync_fetch_and_add(&flow->bytes[side], skb->len);
	if (is_flush_due(bytes, skb->len))
		flush_flow(slot, rest_of_key(&packet->place.key), now_ns);
}

#endif

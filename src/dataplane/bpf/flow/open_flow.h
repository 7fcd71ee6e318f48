/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_OPEN_FLOW_H
#define WEIR_OPEN_FLOW_H

#define AS_REPLY 0x80

static __always_inline enum flow_state opening_state(const struct packet *packet)
{
	switch (packet->protocol) {
	case IPPROTO_TCP:
		/* A TCP flow that begins in the middle of a connection starts in the state established, because the
		 * handshake is over. With the short time-out of a handshake state, the flow of an idle connection
		 * would expire.
		 */
		return packet->tcp_flags & TCP_RST                            ? FLOW_TCP_RESET
		       : packet->tcp_flags & TCP_FIN                          ? FLOW_TCP_HALF_CLOSED
		       : (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN ? FLOW_TCP_SYN_SENT
									      : FLOW_TCP_ESTABLISHED;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
		return FLOW_UDP_OPENED;
	case PROTOCOL_ICMP:
		return FLOW_ICMP_OPENED;
	default:
		return FLOW_OTHER_OPENED;
	}
}

/* The values that `fill_line` stores in the table entry of a new flow. */
struct opening {
	const struct flow_key *key;
	__u64 judgement;
	__u32 slot; /* flow slot that the caller claimed for the flow */
	__u32 side; /* 0: the packet comes from the side that opened the flow; 1: the packet is a reply */
	__u32 came_in; /* incoming interface of the packet; 0: not known */
	__u32 goes_on; /* outgoing interface of the packet; 0: not known */
	__u32 hop;     /* next hop of the packet, as `store_next_hop` returns it; 0: not known */
	const struct packet *translated; /* a packet with DNAT (`translated_packet`), or 0 */
	__u8 state;
	__u8 flags;
	__u16 acknowledged; /* last acknowledgment number of the side that sent the packet (tcp_numbers.h) */
	__u16 member_changes; /* result of `count_of_changes` before the search for the rules; 0: not read */
};

/* Makes the next packet of a flow classify the flow again, if a member (an address of a Kubernetes object)
 * has changed since `changes` was read. User space stores a changed member, then counts the change, and then
 * searches the flows of the address. So the caller stores the judgement, publishes the flow, and then passes
 * a full memory barrier: either this CPU sees the change in the count, or user space sees the flow. Does
 * nothing if `changes` is 0, or if no rule decided the flow (`judgement` is 0).
 */
static __always_inline void check_members(struct flow *flow, __u64 judgement, __u32 changes)
{
	if (changes && judgement && count_of_changes(members_at(0)) != changes)
		__sync_val_compare_and_swap(&flow->judgement, judgement, judgement | RECLASSIFY);
}

static __always_inline void fill_line(struct __sk_buff *skb, const struct opening *opening, __u64 now_ns)
{
	struct flow *flow = flow_at(opening->slot);
	struct tally *tally;
	__u32 side = opening->side;

	if (!flow)
		return;
	flow->judgement = opening->judgement;
	flow->last_seen = ticks_of(now_ns);
	flow->state = opening->state;
	WRITE_ONCE(flow->flags, opening->flags); /* a plain store, so that bits which another CPU set for the old flow of this cache line are cleared */
	flow->opened = now_ns >> OPENED_SHIFT;
	asm volatile("" : "+r"(side)); /* without the barrier, the verifier does not derive that `side` is 0 or 1 */
	side &= 1;
	flow->packets[!side] = flow->bytes[!side] = 0;
	flow->ifindex[side] = opening->came_in;
	/* With strict reverse-path checks, replies must come in by the interface that this packet leaves by. With
	 * other settings, the datapath does not know that interface: it stores 0, and checks the source of the
	 * first reply.
	 */
	flow->ifindex[!side] = settings.reverse_path == REVERSE_PATH_STRICT ? opening->goes_on : 0;
	flow->packets[side] = packets_of(skb);
	flow->bytes[side] = skb->len;
	flow->tcp_numbers[!side] = NO_NUMBER;
	flow->tcp_numbers[side] = opening->acknowledged;
	flow->hops = with_hop(0, side, opening->hop, now_ns);
	tally = are_events_wanted(EVENTS_WANTED_FLOWS | EVENTS_WANTED_PACKETS) ? tally_at(opening->slot) : 0;
	if (tally) {
		tally->opened_ns = now_ns;
		complete_tally(flow, tally, now_ns);
	}
	publish(flow, opening->key);
	/* This compare-and-swap is the full barrier that `check_members` requires. */
	if (opening->member_changes &&
	    __sync_val_compare_and_swap(&flow->judgement, opening->judgement, opening->judgement) == opening->judgement)
		check_members(flow, opening->judgement, opening->member_changes);
	count(COUNT_HALF_OPENED);
	if (tally)
		report_opened(flow, tally, now_ns, opening->translated);
}

/* Fills the cache line that the caller claimed for the flow of a packet. Not inlined, because `struct
 * opening` would exceed the BPF stack of the callers. `how`: see `open_flow`.
 */
__noinline int fill_flow(struct __sk_buff *skb, const struct packet *packet, __u64 judgement, __u8 how)
{
	struct opening opening = { .judgement = judgement, .side = how & AS_REPLY ? 1 : 0 };
	__u64 now_ns = coarse_ns();

	if (!skb || !packet)
		return 0;
	opening.key = &packet->place.key;
	opening.slot = packet->place.slot;
	opening.came_in = packet->outgoing ? 0 : skb->ifindex;
	opening.goes_on = packet->way.ifindex;
	opening.hop = settings.direct && packet->way.ifindex ? store_next_hop(&packet->way, now_ns) : 0;
	opening.translated = translated_packet(packet);
	opening.state = opening_state(packet);
	opening.flags = FLOW_HALF_OPEN | (how & FLOW_FOREIGN) |
			(packet->place.from_high != opening.side ? FLOW_OPENED_BY_HIGH : 0);
	if (opening.state == FLOW_TCP_HALF_CLOSED)
		opening.flags |= FLOW_FIN << opening.side;
	if (opening.state == FLOW_TCP_RESET && opening.side)
		opening.flags |= FLOW_RESET_BY_REPLY;
	if ((packet->tcp_flags & (TCP_ACK | TCP_RST)) == TCP_ACK)
		opening.acknowledged = number_of(packet->acknowledgment);
	opening.member_changes = packet->prefetched.member_changes;
	fill_line(skb, &opening, now_ns);
	return 0;
}

/* Opens a flow for a packet. Returns DROP_NONE, or the reason to drop the packet. `judgement` is active word
 * << 32 | verdict word. `how` is 0, FLOW_FOREIGN, or AS_REPLY if the packet is a reply in the flow. If two
 * CPUs open the same flow at the same time, both packets pass.
 */
static __always_inline enum drop_reason open_flow(struct __sk_buff *skb, struct packet *packet, __u64 judgement, __u8 how)
{
	if (is_over_share(how & AS_REPLY ? PASS_ADDRESS(packet->destination) : PASS_ADDRESS(packet->source), how & FLOW_FOREIGN))
		return DROP_FLOW_SHARE;
	packet->place.slot = claim_line(packet->place.hash, true, coarse_ns());
	if (packet->place.slot == NO_SLOT)
		return DROP_FLOW_TABLE_FULL;
	fill_flow(skb, packet, judgement, how);
	return DROP_NONE;
}

#endif

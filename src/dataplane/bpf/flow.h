/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#define AS_REPLY 0x80

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
static __always_inline void find_place(struct packet *packet)
{
	struct place *place = &packet->place;
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
	place->key.use = KEY_USED;
	if (query)
		place->key.kind = query << 1 | (place->from_high != place->icmp_reply);
	place->hash = hash_of_key(&place->key);
}

/* 0 for packets from the side that opened the flow, 1 for replies. */
static __always_inline __u32 direction_of(const struct flow *flow, const struct packet *packet)
{
	return packet->place.from_high != ((flow->flags & FLOW_OPENED_BY_HIGH) != 0);
}

/* Who makes room in a set: somebody past his time-out, or else the half-open flow that has been silent for longest. Answers his slot,
 * with HALF_OPEN where his mark was taken away, and his key; NO_SLOT where all of them stay.
 */
__noinline __u32 find_room(__u32 set, struct flow_key *key, __u64 now_ns)
{
	__u32 now = ticks_of(now_ns), longest = 0, chosen = set;
	__u64 *tags = tags_at(set), seen, mark;
	struct flow *flow;

	if (!tags || !key)
		return NO_SLOT;
	seen = READ_ONCE(*tags);
	for (__u32 way = 0; way < FLOW_WAYS; way++) {
		__u32 slot = set | way << settings.flow_shift, silent;

		flow = flow_at(slot);
		if (!flow || flow->key.use != KEY_USED)
			continue;
		silent = now - flow->last_seen;
		silent = (__s32)silent < 0 ? 1 : silent + 1;
		if (is_expired(flow, now))
			silent |= 1U << 31;
		else if (!(seen & mark_of(way)))
			continue;
		if (silent > longest) {
			longest = silent;
			chosen = slot;
		}
	}
	flow = flow_at(chosen);
	if (!longest || !flow)
		return NO_SLOT;
	*key = flow->key;
	if (key->use != KEY_USED)
		return NO_SLOT;
	asm volatile("" ::: "memory");
	mark = seen & mark_of(way_of_slot(chosen));
	/* Who is there now may be another: his set is not as it was, or he is not past his time-out. */
	if (mark ? __sync_val_compare_and_swap(tags, seen, seen & ~mark) != seen : !is_expired(flow, now))
		return NO_SLOT;
	return chosen | (mark ? HALF_OPEN : 0);
}

/* False where all of them stay. */
static __always_inline bool make_room(__u32 set, struct flow_key *key, __u64 now_ns)
{
	__u32 slot = find_room(set, key, now_ns);

	return slot != NO_SLOT && end_flow(slot, key, now_ns, ENDED_BY_ITSELF);
}

static __always_inline __u8 tag_with(__u64 hash, bool half)
{
	return tag_of(hash) | (half ? 0x80 : 0);
}

/* A claimed line that was free, in the less crowded of the key's two sets; NO_SLOT where there is none. */
__noinline __u32 claim_at_once(__u64 hash, bool half)
{
	__u32 set = first_set(hash), other = second_set(hash), slot;
	bool spills = is_to_spill(set, other);

	slot = claim_free(spills ? other : set, tag_with(hash, half));
	if (spills && slot != NO_SLOT)
		mark_spilled(set);
	return slot;
}

/* As claim_at_once, for who has looked at the tags of the first set. */
static __always_inline __u32 claim_seen(const struct sought *sought)
{
	__u64 seen = sought->tags, free = ways_with(seen, 0);
	__u32 set = first_set(sought->hash), way = lowest_way(free) & (FLOW_WAYS - 1);
	__u8 tag = tag_with(sought->hash, true);
	__u64 *tags = tags_at(set);

	if (tags && crowd_in(seen) < CROWDED &&
	    __sync_val_compare_and_swap(tags, seen, seen | (__u64)(way ? tag : tag & ~SPILLED) << way * 8) == seen)
		return set | way << settings.flow_shift;
	return claim_at_once(sought->hash, true);
}

/* A claimed line of somebody who made room; NO_SLOT where both sets are full of flows that stay. */
__noinline __u32 claim_with_room(__u64 hash, bool half, __u64 now_ns)
{
	__u32 set = first_set(hash), other = second_set(hash), slot = NO_SLOT;
	struct flow_key key = {};
	bool spills = false;

	/* Another CPU may be faster. */
	for (int tries = 0; slot == NO_SLOT && tries < 2; tries++) {
		spills = !make_room(set, &key, now_ns);
		if (spills)
			make_room(other, &key, now_ns);
		slot = claim_freed(spills ? other : set, tag_with(hash, half));
	}
	if (spills && slot != NO_SLOT)
		mark_spilled(set);
	return slot;
}

static __always_inline __u32 claim_line(__u64 hash, bool half, __u64 now_ns)
{
	__u32 slot = claim_at_once(hash, half);

	return slot == NO_SLOT ? claim_with_room(hash, half, now_ns) : slot;
}

/* Which no flow is in that was confirmed. */
#define OPENING_STATES                                                                \
	(1 << FLOW_TCP_SYN_SENT | 1 << FLOW_TCP_SYN_RECEIVED | 1 << FLOW_UDP_OPENED | \
	 1 << FLOW_ICMP_OPENED | 1 << FLOW_OTHER_OPENED)

#define BOTH_FINS (FLOW_FIN | FLOW_FIN << 1)

/* Both sides may come at once. Answers what is set then. */
static __always_inline __u8 set_flags(struct flow *flow, __u8 more)
{
	return __sync_fetch_and_or(vital_word(flow), (__u32)more << 8) >> 8 | more;
}

static __always_inline __u8 state_after_fins(__u8 flags)
{
	return (flags & BOTH_FINS) == BOTH_FINS ? FLOW_TCP_CLOSING : FLOW_TCP_HALF_CLOSED;
}

/* Follows TCP (RFC 9293, fig. 5). `half`: the handshake is not over. */
static __always_inline void follow_tcp(struct flow *flow, __u32 slot, const struct flow_key *key, __u8 tcp_flags, __u32 side,
				       bool half, __u64 now_ns)
{
	__u8 state = flow->state, flags = flow->flags;
	bool confirmed = false;

	if (!half && state == FLOW_TCP_ESTABLISHED && !(tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)))
		return;
	if (tcp_flags & TCP_RST) {
		if (state == FLOW_TCP_CLOSING)
			return;
		if (side)
			set_flags(flow, FLOW_RESET_BY_REPLY);
		else
			__sync_fetch_and_and(vital_word(flow), ~(FLOW_RESET_BY_REPLY << 8));
		flow->state = FLOW_TCP_RESET;
		return;
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
			confirmed = flow->packets[!side] != 0;
		confirmed = confirmed && confirm_flow(slot, key, now_ns);
	} else if (state == FLOW_TCP_RESET && tcp_flags & TCP_ACK && !(tcp_flags & TCP_SYN) &&
		   side == ((flags & FLOW_RESET_BY_REPLY) != 0)) {
		/* Who goes on has not reset: somebody else forged that. */
		flow->state = flags & BOTH_FINS ? FLOW_TCP_HALF_CLOSED : FLOW_TCP_ESTABLISHED;
	}
	if (tcp_flags & TCP_FIN)
		flags = set_flags(flow, FLOW_FIN << side);
	if ((!half || confirmed) && flow->state != FLOW_TCP_RESET) {
		if (flags & BOTH_FINS)
			flow->state = state_after_fins(flags);
		else if (confirmed)
			flow->state = FLOW_TCP_ESTABLISHED;
	}
}

/* Other protocols are confirmed by the first reply. */
static __always_inline void follow_other(struct flow *flow, __u32 slot, const struct flow_key *key, __u32 side, bool half,
					 __u64 now_ns)
{
	if (!half || !side || !confirm_flow(slot, key, now_ns))
		return;
	flow->state = flow->state == FLOW_UDP_OPENED    ? FLOW_UDP_REPLIED
		      : flow->state == FLOW_ICMP_OPENED ? FLOW_ICMP_REPLIED
							: FLOW_OTHER_REPLIED;
}

/* Accounts for a packet of the flow. */
static __always_inline void follow_flow(struct __sk_buff *skb, struct flow *flow, __u32 slot, const struct flow_key *key,
					const struct packet *packet, __u32 direction, __u64 now_ns)
{
	__u32 side = direction & 1, bytes = READ_ONCE(flow->bytes[side]);
	bool half = slot & HALF_OPEN || OPENING_STATES >> (flow->state & (FLOW_STATES - 1)) & 1;

	if (packet->protocol == IPPROTO_TCP)
		follow_tcp(flow, slot, key, packet->tcp_flags, side, half, now_ns);
	else
		follow_other(flow, slot, key, side, half, now_ns);
	flow->last_seen = ticks_of(now_ns);
	__sync_fetch_and_add(&flow->packets[side], packets_of(skb));
	__sync_fetch_and_add(&flow->bytes[side], skb->len);
	if (is_fold_due(bytes, skb->len))
		fold_flow(slot, ((const __u64 *)key)[1], now_ns);
}

static __always_inline enum flow_state opening_state(const struct packet *packet)
{
	switch (packet->protocol) {
	case IPPROTO_TCP:
		/* Picked up in the middle of its life: nobody knows whether it was answered, so it gets the long time. */
		return packet->tcp_flags & TCP_RST                            ? FLOW_TCP_RESET
		       : packet->tcp_flags & TCP_FIN                          ? FLOW_TCP_HALF_CLOSED
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

/* A flow that a packet opens. */
struct opening {
	const struct flow_key *key;
	__u64 judged;
	__u32 slot; /* claimed for it */
	__u32 side; /* that the packet is of */
	__u32 came_in; /* by which interface; 0: not known, */
	__u32 goes_on; /* and by which, */
	__u32 hop;     /* as in struct flow */
	__u8 state;
	__u8 flags;
};

static __always_inline void fill_line(struct __sk_buff *skb, const struct opening *opening, __u64 now_ns)
{
	struct flow *flow = flow_at(opening->slot);
	struct tally *tally;
	__u32 side = opening->side;

	if (!flow)
		return;
	flow->judgement = opening->judged;
	flow->last_seen = ticks_of(now_ns);
	flow->state = opening->state;
	WRITE_ONCE(flow->flags, opening->flags); /* once: what another CPU left there must not come back */
	flow->opened = now_ns >> OPENED_SHIFT;
	asm volatile("" : "+r"(side)); /* else the verifier does not know that it is 0 or 1 */
	side &= 1;
	flow->packets[!side] = flow->bytes[!side] = 0;
	flow->ifindex[side] = opening->came_in;
	/* What answers comes from where the routes sent this, or its source is looked for. */
	flow->ifindex[!side] = settings.reverse_path == REVERSE_PATH_STRICT ? opening->goes_on : 0;
	flow->packets[side] = packets_of(skb);
	flow->bytes[side] = skb->len;
	flow->hops[!side] = 0;
	flow->hops[side] = opening->hop;
	tally = are_events_wanted(EVENTS_WANTED_FLOWS | EVENTS_WANTED_PACKETS) ? tally_at(opening->slot) : 0;
	if (tally) {
		tally->opened_ns = now_ns;
		settle(flow, tally, now_ns);
	}
	publish(flow, opening->key);
	count(COUNT_HALF_OPENED);
	if (tally)
		tell_flow(flow, tally, EVENT_FLOW_OPENED, now_ns, ENDED_BY_ITSELF);
}

/* Fills the line that was claimed. A call of its own, since the stack is short. */
__noinline int fill_flow(struct __sk_buff *skb, const struct packet *packet, __u64 judged, __u8 how)
{
	struct opening opening = { .judged = judged, .side = how & AS_REPLY ? 1 : 0 };
	__u64 now_ns = coarse_ns();

	if (!packet)
		return 0;
	opening.key = &packet->place.key;
	opening.slot = packet->place.slot;
	opening.came_in = packet->outgoing ? 0 : skb->ifindex;
	opening.goes_on = packet->way.ifindex;
	opening.hop = settings.direct && packet->way.ifindex ? keep_way(&packet->way, now_ns) : 0;
	opening.state = opening_state(packet);
	opening.flags = FLOW_HALF_OPEN | (how & FLOW_FOREIGN) |
			(packet->place.from_high != opening.side ? FLOW_OPENED_BY_HIGH : 0);
	if (opening.state == FLOW_TCP_HALF_CLOSED)
		opening.flags |= FLOW_FIN << opening.side;
	if (opening.state == FLOW_TCP_RESET && opening.side)
		opening.flags |= FLOW_RESET_BY_REPLY;
	fill_line(skb, &opening, now_ns);
	return 0;
}

/* DROP_NONE, or why the packet must not pass. `judged` is as in tell_packet; `how`: FLOW_FOREIGN, or AS_REPLY where
 * the packet is taken for one of the side that was asked. Two packets that open one flow on two CPUs both pass.
 */
static __always_inline enum drop_reason open_flow(struct __sk_buff *skb, struct packet *packet, __u64 judged, __u8 how)
{
	if (is_over_share(how & AS_REPLY ? packet->destination : packet->source, how & FLOW_FOREIGN))
		return DROP_FLOW_SHARE;
	packet->place.slot = claim_line(packet->place.hash, true, coarse_ns());
	if (packet->place.slot == NO_SLOT)
		return DROP_FLOW_TABLE_FULL;
	fill_flow(skb, packet, judged, how);
	return DROP_NONE;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FULL_PATH_H
#define WEIR_FULL_PATH_H

/* Stores the next hop of a packet in `packet->way`. Uses the next hop that the flow has stored if it is
 * fresh. Otherwise looks up the next hop, and stores it in the flow. Not inlined, because the callers would
 * exceed the BPF stack.
 */
__noinline int find_way_of_flow(struct __sk_buff *skb, struct flow *flow, struct packet *packet, __u32 side, __u64 now)
{
	__u32 seen, hop, kept;
	struct way *way;

	if (!flow || !packet)
		return 0;
	side &= 1;
	seen = READ_ONCE(flow->hops);
	asm volatile("" ::: "memory");
	hop = are_fresh(seen, now) && same_key(&flow->key, &packet->place.key) ? hop_of(seen, side) : 0;
	way = hop ? way_of(hop) : 0;
	if (way) {
		packet->way = *way;
		return 0;
	}
	is_not_forwarded(skb, packet);
	kept = with_hop(seen, side, store_next_hop(&packet->way, now), now);
	__sync_val_compare_and_swap(&flow->hops, seen, kept);
	/* Another flow may use the cache line by now. Remove the next hops in this case, because they belong to the
	 * old flow.
	 */
	if (!same_key(&flow->key, &packet->place.key))
		__sync_val_compare_and_swap(&flow->hops, kept, 0);
	return 0;
}

/* Handles a packet of an existing flow. If the flow was not classified by the policy in force, classifies it
 * again.
 */
static __always_inline enum outcome continue_flow(struct __sk_buff *skb, struct packet *packet, const struct found_flow *found,
						  const struct active *in_force, __u32 active_word, __u64 now)
{
	struct flow *flow = found->flow;
	__u64 judgement = found->judgement;
	__u32 slot = found->slot, direction = direction_of(flow, packet), word = judgement;
	bool foreign = judgement == 0, at_once = !packet->outgoing && may_send_directly(in_force, now);

	if (!packet->outgoing && flow->ifindex[direction & 1] != skb->ifindex) {
		if (is_spoofed(skb, packet))
			return drop(skb, packet, DROP_SPOOFED_SOURCE);
		if (same_key(&flow->key, &packet->place.key))
			flow->ifindex[direction & 1] = skb->ifindex;
	}
	if (is_stray_reset(flow, packet, direction))
		return drop(skb, packet, DROP_TCP_SEQUENCE);
	if (!foreign && judgement >> 32 != active_word) {
		enum drop_reason refused;

		word = renew_judgement(packet, found, active_word, direction, now);
		refused = refusal_of(word);
		if (refused)
			return refuse(skb, packet, (__u64)active_word << 32 | word, refused);
	}
	if (at_once)
		find_way_of_flow(skb, flow, packet, direction, now);
	follow_flow(skb, flow, slot, packet, direction, now);
	return foreign ? pass(skb, COUNT_FOREIGN) : pass_verdict(skb, word);
}

/* Returns whether one end of the connection is the node itself. The service plane inspects only
 * connections between other hosts.
 */
static __always_inline bool is_of_node(struct __sk_buff *skb, struct packet *packet)
{
	return packet->outgoing || (settings.police_local && is_not_forwarded(skb, packet));
}

/* Handles a TCP packet that has no flow and is not a SYN (D4, D18). Normally drops the packet, or passes the
 * packet without a flow if the verdict is audited. During the pickup period (`dataplane.pickup`; `picked_up`
 * is true), the packet opens a flow if the policy allows it, even if it is a reply.
 */
__noinline enum outcome handle_stray_tcp(struct __sk_buff *skb, struct packet *packet, __u32 active_word, bool picked_up)
{
	__u64 judgement = (__u64)active_word << 32;
	enum drop_reason refused;
	__u8 how = 0;

	if (!packet)
		return OUTCOME_DROP;
	judgement |= classify_packet(packet, judgement >> 32, false);
	if (!picked_up || packet->fragment == FRAGMENT_LATER) {
		if ((__u32)judgement & AUDITED)
			return pass_alone(skb, packet, judgement);
		/* If the kernel answered the SYN with a SYN cookie, no socket exists yet. The service plane's listener
		 * must get this ACK, which then opens the connection.
		 */
		if (((__u32)judgement & 7) == VERDICT_REDIRECT && is_inspecting() &&
		    (packet->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_ACK && !is_of_node(skb, packet) &&
		    !is_switched(skb)) {
			enum outcome outcome = inspect(skb, packet, judgement);

			if (outcome != NOT_INSPECTED)
				return outcome;
		}
	}
	/* A packet with `has_real_flow` is not classified as a reply: conntrack shows that it comes from the
	 * opener.
	 */
	if (refusal_of(judgement) && !packet->has_real_flow) {
		__u32 reply = classify_packet(packet, judgement >> 32, true);

		if (!refusal_of(reply)) {
			judgement = judgement >> 32 << 32 | reply;
			how = AS_REPLY;
		}
	}
	/* The event names the rule that would decide the flow, but `report_packet` does not count the packet as a
	 * hit of that rule.
	 */
	if (!picked_up || packet->fragment == FRAGMENT_LATER)
		return refuse(skb, packet, judgement, DROP_OUT_OF_STATE);
	if (refusal_of(judgement))
		return refuse(skb, packet, judgement, refusal_of(judgement));
	if (!packet->place.stateful)
		return pass_alone(skb, packet, judgement);
	refused = open_flow(skb, packet, judgement, how);
	return refused ? drop(skb, packet, refused) : pass_verdict(skb, judgement);
}

/* Handles a packet that belongs to no known flow: classifies it, and opens a flow if it is allowed. */
static __always_inline enum outcome begin_flow(struct __sk_buff *skb, struct packet *packet, const struct active *in_force,
					       __u32 active_word, __u64 now)
{
	enum drop_reason refused;
	__u64 judgement;

	if (!active_word)
		return settings.pass_without_policy ? pass(skb, COUNT_ALLOW) : drop(skb, packet, DROP_NO_POLICY);
	if (packet->protocol == IPPROTO_TCP && !opens_tcp(packet))
		return handle_stray_tcp(skb, packet, active_word,
					now < READ_ONCE(in_force->pickup_until_ns) || packet->has_real_flow);
	judgement = (__u64)active_word << 32 | classify_packet(packet, active_word, false);
	refused = refusal_of(judgement);
	if (((__u32)judgement & 7) == VERDICT_REDIRECT) {
		bool of_node = is_of_node(skb, packet);

		if (is_inspecting() && !of_node && !is_switched(skb)) {
			enum outcome outcome = is_spliced(packet) ? forward_spliced(skb, packet) : inspect(skb, packet, judgement);

			if (outcome != NOT_INSPECTED && outcome != NOT_SPLICED)
				return outcome;
		}
		if (refused)
			refused = of_node ? DROP_NODE_UNINSPECTED : DROP_SERVICE_PLANE_ABSENT;
	}
	if (refused)
		return refuse(skb, packet, judgement, refused);
	/* Pass an ICMP reply that has no query, but open no flow for the reply: in a flow that a reply opens, the
	 * other side could send queries.
	 */
	if (!packet->place.stateful || packet->place.icmp_reply || packet->fragment == FRAGMENT_LATER)
		return pass_alone(skb, packet, judgement);
	refused = open_flow(skb, packet, judgement, 0);
	return refused ? drop(skb, packet, refused) : pass_verdict(skb, judgement);
}

__noinline enum outcome finish_error(struct __sk_buff *skb, const struct packet *error, __u64 judgement,
				     enum drop_reason refused)
{
	if (!skb)
		return OUTCOME_DROP;
	if (refused)
		return refuse(skb, error, judgement, refused);
	count(COUNT_ICMP_RELATED);
	if (judgement) {
		struct hit_ref ref = hit_of(judgement >> 32, judgement);

		add_hit(ref.hit, ref.check, packets_of(skb), skb->len, coarse_ns());
	}
	return judgement ? pass_verdict(skb, judgement) : pass(skb, COUNT_FOREIGN);
}

/* Handles a parsed packet. Not static, because the verifier checks a global function once and a static
 * function again for each call path.
 */
__noinline enum outcome handle_packet(struct __sk_buff *skb, struct packet *packet)
{
	__u32 active_word, first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);
	struct found_flow found = { .slot = NO_SLOT };
	__u64 now = coarse_ns();
	bool plain = false, has_flow;

	if (!packet)
		return OUTCOME_DROP;
	if (!in_force)
		return drop(skb, packet, DROP_NO_POLICY);
	active_word = READ_ONCE(in_force->word);
	find_flow_key(packet);
	has_flow = !packet->has_no_flow && find_flow(packet, &found, now) && found.flow;
	if (!has_flow && may_be_translated(skb, in_force, packet) && find_real_destination(skb, packet)) {
		has_flow = find_flow(packet, &found, now) && found.flow;
		/* The flow with the destination of the header has ended. The policy may now deny this
		 * destination, so classify the packet also by this destination.
		 */
		if (has_two_destinations(skb, packet)) {
			restore_destination(packet);
			packet->has_real_flow = has_flow;
			has_flow = false;
		}
	}
	if (has_flow && is_outside_flow(found.flow, packet, found.judgement)) {
		packet->place.stateful = false;
		has_flow = false;
	}
	if (has_flow) {
		enum outcome outcome = continue_flow(skb, packet, &found, in_force, active_word, now);

		return outcome == OUTCOME_PASS ? mark_translated(skb, packet, found.judgement ? found.flow->state : 0) : outcome;
	}
	if (is_to_service(skb, in_force, packet))
		return pass_to_node(skb, packet);
	if (is_inspecting() && packet->protocol == IPPROTO_TCP && !opens_tcp(packet) && !is_switched(skb)) {
		enum outcome outcome = forward_spliced(skb, packet);

		if (outcome != NOT_SPLICED)
			return outcome;
		outcome = continue_inspected(skb, packet);
		if (outcome != NOT_INSPECTED)
			return outcome;
	}
	if (is_inspecting() && packet->protocol == PROTOCOL_ICMP && is_icmp_error(packet->icmp_type) &&
	    is_translating(in_force) && is_about_translated(skb, packet))
		return deliver_to_node(skb);
	if (!packet->outgoing) {
		plain = is_plainly_forwarded(skb, packet);
		if (!plain && !settings.police_local && is_not_forwarded(skb, packet)) {
			if (is_for_own_socket(skb, packet) && is_spoofed(skb, packet))
				return drop(skb, packet, DROP_SPOOFED_SOURCE);
			return pass_to_node(skb, packet);
		}
		if (packet->protocol == PROTOCOL_ICMP && packet->icmp_type == ICMP_REDIRECT)
			return drop(skb, packet, DROP_ICMP_REDIRECT);
	}
	if (packet->protocol == PROTOCOL_ICMP && is_icmp_error(packet->icmp_type)) {
		__u64 judgement = 0;
		int refused = classify_icmp_error(skb, packet, &judgement);

		if (refused == ABOUT_INSPECTED)
			return deliver_to_node(skb);
		if (refused == ABOUT_SPLICED)
			return pass(skb, COUNT_JOINED);
		if (refused == DROP_NONE && judgement) {
			__u32 word = classify_quoted(judgement, active_word);

			refused = refusal_of(word);
			judgement = (__u64)active_word << 32 | word;
		}
		if (refused != NOT_RELATED)
			return finish_error(skb, packet, judgement, refused);
		/* Do not open a flow for an ICMP error: an error is not part of a query and its reply. */
		packet->place.stateful = false;
	}
	if (!packet->outgoing && !plain && is_spoofed(skb, packet))
		return drop(skb, packet, DROP_SPOOFED_SOURCE);
	return begin_flow(skb, packet, in_force, active_word, now);
}

/* Handles a packet. If the packet passes and direct forwarding is on, sends the packet directly to the next
 * hop. Sends GSO packets (merged segments) only if it translates them: `handle_packet` has sent those of
 * spliced connections, and the others go through the network stack.
 */
static __always_inline enum outcome deliver(struct __sk_buff *skb, struct packet *packet)
{
	enum outcome outcome = handle_packet(skb, packet);
	struct active *in_force;
	__u32 first = 0;

	if (!settings.direct || packet->outgoing || outcome == OUTCOME_DROP || !(skb->mark & settings.guard_bit))
		return outcome;
	if (packet->sends_translated)
		return send_translated(skb, &packet->way, &packet->translated);
	if (skb->gso_size || packet->is_translated)
		return outcome;
	in_force = bpf_map_lookup_elem(&active, &first);
	if (!in_force || !is_sent_directly(in_force, coarse_ns()))
		return outcome;
	return send(skb, &packet->way, skb->len - ETH_HLEN);
}

/* Calls `deny_to_others` for a dropped packet, because the bridge device may still have to receive it. Only
 * packets with valid headers reach this function.
 */
static __always_inline enum outcome after_drop(struct __sk_buff *skb, const struct packet *packet, enum outcome outcome)
{
	return outcome == OUTCOME_DROP && !packet->outgoing ? deny_to_others(skb) : outcome;
}

static __always_inline enum outcome handle_ip(struct __sk_buff *skb, struct packet *packet)
{
	enum drop_reason wrong = parse(skb, packet);
	struct active *in_force;
	enum outcome outcome;
	__u32 first = 0;

	if (wrong)
		return drop(skb, packet, wrong);
	if (is_loopback(packet->source) || is_loopback(packet->destination))
		return drop(skb, packet, DROP_LOOPBACK);
	if (!packet->outgoing && is_of_router(packet) && is_rogue_router(skb))
		return drop(skb, packet, DROP_ROUTER_GUARD);
	if (!packet->outgoing && may_be_of_router(skb) && is_left_to_bridge(skb))
		return pass_unmarked(skb, COUNT_TO_NODE);
	if (is_dns_lookup(packet)) {
		outcome = divert(skb, packet);
		if (outcome != NOT_DIVERTED)
			return outcome;
	}
	if (packet->fragment == FRAGMENT_NONE)
		return after_drop(skb, packet, deliver(skb, packet));
	/* Check the source before the search for the datagram, because a fragment with a forged source could end
	 * the reassembly state of another host's datagram.
	 */
	if (!packet->outgoing && is_spoofed(skb, packet))
		return drop(skb, packet, DROP_SPOOFED_SOURCE);
	if (packet->fragment == FRAGMENT_LATER) {
		wrong = restore_ports(skb, packet);
		if (!wrong)
			return after_drop(skb, packet, deliver(skb, packet));
		in_force = bpf_map_lookup_elem(&active, &first);
		if (!packet->outgoing && !settings.police_local &&
		    ((in_force && is_to_service(skb, in_force, packet)) || is_not_forwarded(skb, packet)))
			return pass_to_node(skb, packet);
		return after_drop(skb, packet, drop(skb, packet, wrong));
	}
	outcome = deliver(skb, packet);
	if (outcome == OUTCOME_DROP || outcome == TO_PREDECESSOR)
		forget_fragment(skb, packet);
	else if (skb->mark & settings.mark_mask & ~settings.nat_bit) /* without a mark, the packet goes to the node itself, and so do its later fragments */
		remember_fragment(skb, packet);
	return after_drop(skb, packet, outcome);
}

/* Passes an outgoing packet without a classification, and opens or updates a foreign flow (which no rule
 * decides) for the packet, so that its replies pass.
 */
__noinline enum outcome follow_foreign(struct __sk_buff *skb, enum counter_index index)
{
	struct packet *packet = new_packet(0);
	struct found_flow found = { .slot = NO_SLOT };
	__u64 now = coarse_ns();
	bool has_flow, is_answer;

	if (!packet)
		return OUTCOME_DROP;
	packet->outgoing = true;
	/* The datapath drops packets to a loopback address, so a flow with such an address could not get replies. */
	if (parse(skb, packet) || packet->fragment == FRAGMENT_LATER || is_loopback(packet->source) ||
	    is_loopback(packet->destination))
		return pass_unmarked(skb, index);
	if (is_inspecting() && index == COUNT_FROM_NODE && packet->protocol == IPPROTO_TCP && has_foreign_source(skb, packet))
		return pass_unmarked(skb, index);
	find_flow_key(packet);
	is_answer = find_real_source(skb, packet);
	has_flow = find_flow(packet, &found, now) && found.flow;
	if (has_flow && (!found.judgement || direction_of(found.flow, packet))) {
		if (!is_suspended(found.judgement) && !is_stray_reset(found.flow, packet, direction_of(found.flow, packet)))
			follow_flow(skb, found.flow, found.slot, packet, direction_of(found.flow, packet), now);
	} else if (!has_flow && !is_answer && packet->place.stateful && !packet->place.icmp_reply)
		open_flow(skb, packet, 0, FLOW_FOREIGN);
	return pass_unmarked(skb, index);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_EVENTS_H
#define WEIR_EVENTS_H

#define BUDGET_SHIFT 20 /* shifts a 32-bit hash of the source to an index of `budgets`: 32 - log2(BUDGETS) */
#define WINDOW_SHIFT 30 /* log2 of the length of a budget window in ns: 1.07 s */

static __always_inline bool are_events_wanted(__u32 kinds)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	return in_force && in_force->events_wanted & kinds;
}

/* Takes one event from the budget of a source in the current window. Returns false if the budget is used up.
 * Otherwise stores in `suppressed` how many events this CPU has suppressed since its last event of a source
 * with the same hash.
 */
static __always_inline bool take_budget(address_t source, bool of_flow, __u64 now_ns, __u32 *suppressed)
{
	__u32 bucket = (number_of_source(source) * 0x9e3779b1U) >> BUDGET_SHIFT;
	struct budget *budget = bpf_map_lookup_elem(&budgets, &bucket);
	__u32 window = now_ns >> WINDOW_SHIFT;
	__u32 spent;

	if (!budget)
		return false;
	if (budget->window != window) {
		budget->window = window;
		budget->denied = budget->opened = 0;
	}
	spent = of_flow ? budget->opened : budget->denied;
	if (spent >= (of_flow ? settings.flow_events : settings.deny_events)) {
		budget->suppressed += 1;
		count(COUNT_EVENTS_SUPPRESSED);
		return false;
	}
	if (of_flow)
		budget->opened = spent + 1;
	else
		budget->denied = spent + 1;
	*suppressed = budget->suppressed;
	budget->suppressed = 0;
	return true;
}

/* Restores the number of suppressed events of a source: the event that should have reported this number was
 * lost, because the ring buffer was full.
 */
static __always_inline void return_budget(address_t source, __u32 suppressed)
{
	__u32 bucket = (number_of_source(source) * 0x9e3779b1U) >> BUDGET_SHIFT;
	struct budget *budget = bpf_map_lookup_elem(&budgets, &bucket);

	if (budget)
		budget->suppressed += suppressed;
}

/* Reserves an event in the ring buffer, which the caller must fill in and submit. Returns 0 if the budget
 * of the source is used up or the ring buffer is full.
 */
static __always_inline struct event *reserve_event(address_t source, bool of_flow, __u64 now_ns)
{
	__u32 suppressed = 0;
	struct event *event;

	if (!take_budget(source, of_flow, now_ns, &suppressed))
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		return_budget(source, suppressed);
		count(COUNT_EVENTS_LOST);
		return 0;
	}
	count(COUNT_EVENTS);
	event->suppressed = suppressed;
	return event;
}

/* Counts a packet that belongs to no flow as a hit of its rule, and reports the packet if events of packets
 * are requested (enum events_wanted). `judgement` is active word << 32 | verdict word; 0 if the policy did
 * not classify the packet.
 */
__noinline int report_packet(struct __sk_buff *skb, const struct packet *packet, __u64 judgement,
			     enum drop_reason reason)
{
	__u32 word = judgement, active_word = judgement >> 32;
	__u64 now_ns = coarse_ns();
	struct hit_ref ref = {};
	struct event *event;

	if (!skb || !packet)
		return 0;
	if (word) {
		ref = hit_of(active_word, word);
		/* Do not count a TCP packet that is out of state as a hit: the packet is dropped even if the rule allows
		 * it.
		 */
		if (reason != DROP_OUT_OF_STATE)
			add_hit(ref.hit, ref.check, packets_of(skb), skb->len, now_ns);
	}
	event = are_events_wanted(EVENTS_WANTED_PACKETS) ? reserve_event(packet->source, false, now_ns) : 0;
	if (!event)
		return 0;
	event->time_ns = now_ns;
	event->type = !reason                               ? EVENT_PASSED
		      : word && reason != DROP_OUT_OF_STATE ? EVENT_DENIED
							    : EVENT_DROPPED;
	event->verdict = word & 7;
	event->drop_reason = reason;
	event->protocol = packet->protocol;
	event->ifindex = skb->ifindex;
	event->source = packet->source;
	event->destination = packet->destination;
	event->source_port = packet->source_port;
	event->destination_port = packet->destination_port;
	event->icmp_type = packet->icmp_type;
	event->icmp_code = packet->icmp_code;
	event->tcp_flags = packet->tcp_flags;
	event->flags = EVENT_FAMILY | (word & AUDITED ? EVENT_AUDITED : 0) | (packet->outgoing ? EVENT_OUTGOING : 0);
	event->epoch = active_word >> 1 & MAX_EPOCH;
	event->word = word;
	event->hit = ref.hit;
	event->hit_check = ref.check;
	event->length = skb->len;
	event->opened_ns = 0;
	event->packets[0] = packets_of(skb);
	event->bytes[0] = skb->len;
	set_wire_destination(event, translated_packet(packet));
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Values of `ended_by`: the cause of the end of a flow. Any other value is active word << 32 | the verdict
 * word by which a new policy refuses the flow.
 */
#define ENDED_BY_ITSELF 0
#define ENDED_BY_CUT 1

/* Reports that a flow opened, ended, was suspended or resumed, if events of flows are requested (enum
 * events_wanted). `translated`: the packet that opened the flow, as `translated_packet` returns it.
 */
static __always_inline int report_flow(const struct flow *flow, const struct tally *tally, enum event_type type, __u64 now_ns,
				       __u64 ended_by, const struct packet *translated)
{
	__u64 judgement = ended_by > ENDED_BY_CUT ? ended_by
			  : flow                  ? flow->judgement
						  : 0;
	__u32 kinds = EVENTS_WANTED_FLOWS;
	struct hit_ref ref;
	bool by_high;
	struct event *event;

	if (!flow || !tally)
		return 0;
	/* Report an audited flow also if only events of single packets are requested, so that each audited
	 * connection has an event.
	 */
	if (type == EVENT_FLOW_OPENED && (flow->judgement & 7) > VERDICT_ALLOW)
		kinds |= EVENTS_WANTED_PACKETS;
	if (!are_events_wanted(kinds))
		return 0;
	by_high = flow->flags & FLOW_OPENED_BY_HIGH;
	event = reserve_event(by_high ? flow->key.high_address : flow->key.low_address, true, now_ns);
	if (!event)
		return 0;
	event->time_ns = now_ns;
	event->type = type;
	event->verdict = judgement & 7;
	event->drop_reason = is_suspended(judgement) ? refusal_of(judgement) : DROP_NONE;
	event->protocol = flow->key.protocol;
	event->ifindex = flow->ifindex[0];
	event->source = by_high ? flow->key.high_address : flow->key.low_address;
	event->destination = by_high ? flow->key.low_address : flow->key.high_address;
	event->source_port = by_high ? flow->key.high_port : flow->key.low_port;
	event->destination_port = by_high ? flow->key.low_port : flow->key.high_port;
	event->icmp_type = 0;
	event->icmp_code = 0;
	event->tcp_flags = flow->state;
	event->flags = EVENT_FAMILY | (judgement & AUDITED ? EVENT_AUDITED : 0) | (flow->flags & FLOW_FOREIGN ? EVENT_FOREIGN : 0) |
		       (ended_by == ENDED_BY_CUT ? EVENT_CUT : 0);
	event->epoch = judgement >> 33 & MAX_EPOCH;
	event->word = judgement;
	event->hit = tally->hit;
	event->hit_check = tally->hit_check;
	if (ended_by > ENDED_BY_CUT) {
		ref = hit_of(judgement >> 32, judgement);
		event->hit = ref.hit;
		event->hit_check = ref.check;
	}
	event->length = 0;
	event->opened_ns = tally->opened_ns;
#pragma unroll
	for (int side = 0; side < 2; side++) {
		event->packets[side] =
			tally->total_packets[side] + since_flush(flow->packets[side], tally->folded_packets[side]);
		event->bytes[side] = tally->total_bytes[side] + since_flush(flow->bytes[side], tally->folded_bytes[side]);
	}
	if (translated)
		set_wire_destination(event, translated);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

__noinline int report_opened(const struct flow *flow, const struct tally *tally, __u64 now_ns, const struct packet *translated)
{
	return report_flow(flow, tally, EVENT_FLOW_OPENED, now_ns, ENDED_BY_ITSELF, translated);
}

__noinline int report_ended(const struct flow *flow, const struct tally *tally, __u64 now_ns, __u64 ended_by)
{
	return report_flow(flow, tally, EVENT_FLOW_ENDED, now_ns, ended_by, 0);
}

/* Reports that a later policy has suspended (denied) or resumed a flow, by the present `judgement` of the
 * flow.
 */
__noinline int report_suspension(const struct flow *flow, const struct tally *tally, enum event_type type, __u64 now_ns)
{
	return report_flow(flow, tally, type, now_ns, ENDED_BY_ITSELF, 0);
}

#endif

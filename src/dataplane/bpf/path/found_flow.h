/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FOUND_FLOW_H
#define WEIR_FOUND_FLOW_H

/* The search for the flow of a packet, and the classification of a flow by a later policy. The full path
 * (full_path.h) and the forward judge (nat/forward_judge.h) call these functions.
 */

/* The result of `find_flow`: the flow of a packet, and its `judgement` (active word and verdict word of its
 * classification). The value stays that of this flow even if another CPU replaces the flow in the cache line.
 */
struct found_flow {
	struct flow *flow;
	__u64 judgement;
	__u32 slot; /* flow slot; contains the bit HALF_OPEN if the flow is half open */
};

/* Returns whether a SYN reuses the addresses and ports of a TCP connection that has ended. */
static __always_inline bool is_reopened(const struct flow *flow, const struct packet *packet)
{
	return packet->protocol == IPPROTO_TCP && flow->state >= FLOW_TCP_CLOSING && opens_tcp(packet);
}

/* Returns whether a packet matches the flow key of a flow but does not belong to the flow. `judgement` is 0
 * for a flow that was opened on an interface without policy: only replies may pass by it. A SYN from the
 * replying side does not belong to an established connection.
 */
static __always_inline bool is_outside_flow(const struct flow *flow, const struct packet *packet, __u64 judgement)
{
	bool reply = direction_of(flow, packet);

	if (!judgement && (packet->outgoing || !reply))
		return true;
	return reply && packet->protocol == IPPROTO_TCP && flow->state >= FLOW_TCP_ESTABLISHED && opens_tcp(packet);
}

/* Suspends a flow, because a later policy denies it. The caller owns the statistics of the flow, and has
 * stored the verdict of that policy in its `judgement`.
 */
static __always_inline void suspend(struct flow *flow, struct tally *tally, const struct flow_key *key, __u32 slot, __u64 now)
{
	__u64 *tags = tags_at(set_of_slot(slot));
	__u8 flags = set_flags(flow, 0);

	count(COUNT_FLOWS_SUSPENDED);
	report_suspension(flow, tally, EVENT_FLOW_SUSPENDED, now);
	if (flags & FLOW_HALF_OPEN)
		return;
	/* Make the flow half open, so that it does not count as established, and a new flow can evict it. Set the
	 * mark last: from then on, another CPU can evict the flow.
	 */
	set_flags(flow, FLOW_HALF_OPEN);
	count_established(key, flags, -1);
	count(COUNT_FLOWS_CLOSED);
	if (tags)
		__sync_fetch_and_or(tags, mark_of(way_of_slot(slot)));
}

/* Classifies the flow of a packet again by the policy in force, and stores the active word and the new
 * verdict word in the flow. Returns the verdict word. Not inlined, because the callers would exceed the BPF
 * stack.
 *
 * If the policy refuses an established flow, the flow is suspended: no packet of the flow passes or extends
 * its time-out, and each packet classifies the flow again (RECLASSIFY), so the flow goes on under a later
 * policy that allows it. A refused flow that never was established ends: its next packet can open it again.
 */
static __noinline __u32 renew_judgement(struct packet *packet, const struct found_flow *found, __u32 active_word,
					__u32 direction, __u64 now)
{
	__u64 judgement = found->judgement, renewed;
	struct tally *tally = tally_at(found->slot);
	struct flow *flow = found->flow;
	__u32 word = classify_again(packet, active_word, direction);
	bool refused = refusal_of(word);
	enum flush flush;

	renewed = (__u64)active_word << 32 | word;
	if (refused && OPENING_STATES >> (flow->state & (FLOW_STATES - 1)) & 1) {
		end_flow(found->slot, &packet->place.key, now, renewed);
		return word;
	}
	if (refused)
		renewed |= RECLASSIFY;
	if (!tally)
		return 0;
	if (judgement == renewed)
		return word;
	/* If another CPU flushes the flow, this CPU does not store the new verdict: the next packet of the flow
	 * tries again. If the cache line has another flow by now, there is nothing to store.
	 */
	flush = await_flush(flow, rest_of_key(&packet->place.key));
	if (flush == FLUSH_OWNED) {
		flush_owned(flow, tally, now);
		if (same_key(&flow->key, &packet->place.key) &&
		    __sync_val_compare_and_swap(&flow->judgement, judgement, renewed) == judgement) {
			*hit_in(tally) = packed_hit(hit_of(active_word, word));
			if (!refused)
				count(COUNT_FLOWS_REJUDGED);
			if (refused && !is_suspended(judgement)) {
				suspend(flow, tally, &packet->place.key, found->slot, now);
			} else if (!refused && is_suspended(judgement)) {
				count(COUNT_FLOWS_RESUMED);
				report_suspension(flow, tally, EVENT_FLOW_RESUMED, now);
			}
			/* The compare-and-swap above is the full barrier that `check_members` requires. */
			check_members(flow, renewed, packet->prefetched.member_changes);
		}
		flush = finish_flush(flow);
	}
	if (flush == FLUSH_END)
		finish_flow(found->slot, now, ENDED_BY_ITSELF);
	return word;
}

/* Finds the flow of a packet, and returns false if the packet has no flow. Ends the flow and returns false
 * if the flow has expired, or if a SYN reopens its ended connection.
 */
static __noinline bool find_flow(const struct packet *packet, struct found_flow *found, __u64 now)
{
	struct flow *flow;

	if (!packet->place.stateful)
		return false;
	found->slot = find_slot(&packet->place.key, packet->place.hash);
	flow = flow_at(found->slot);
	found->flow = flow;
	if (!flow)
		return false;
	found->judgement = READ_ONCE(flow->judgement);
	asm volatile("" ::: "memory");
	if (!same_key(&flow->key, &packet->place.key))
		return false;
	if (!is_reopened(flow, packet) && !is_expired(flow, ticks_of(now)))
		return true;
	end_flow(found->slot, &packet->place.key, now, ENDED_BY_ITSELF);
	return false;
}

#endif

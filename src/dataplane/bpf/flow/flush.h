/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLUSH_H
#define WEIR_FLUSH_H

/* Packets and bytes are counted in the line of their flow, and flushed to its tally and to the hits of its
 * rule now and then. One CPU at a time flushes a flow: it sets a bit in the flags of the flow, and then
 * checks that the line is still that flow's. A CPU that wants to end a flow during a flush by another CPU
 * leaves that to the other CPU. It never waits for long: the other CPU may have been preempted.
 */

/* Returns the time when a flow opened, from the flow itself: at most seven minutes ago. The caller's clock
 * may be behind.
 */
static __always_inline __u64 opened_at(const struct flow *flow, __u64 now_ns)
{
	__u64 now = now_ns >> OPENED_SHIFT;
	__u16 ago = now - flow->opened;

	return (now - (ago < 0xc000 ? ago : 0)) << OPENED_SHIFT;
}

static __always_inline __u32 *vital_word(struct flow *flow)
{
	return (__u32 *)&flow->state;
}

static __always_inline bool is_being_flushed(struct flow *flow)
{
	return READ_ONCE(*vital_word(flow)) & FLOW_FLUSHING << 8;
}

/* Completes a tally that the first packet left empty. */
static __always_inline void complete_tally(struct flow *flow, struct tally *tally, __u64 now_ns)
{
	__u64 judged;

	if (!tally->opened_ns)
		tally->opened_ns = opened_at(flow, now_ns);
	if (*hit_in(tally))
		return;
	judged = READ_ONCE(flow->judgement);
	/* No entry is known for a foreign flow, nor for one that another datapath classified. */
	*hit_in(tally) = judged >> 32 ? packed_hit(hit_of(judged >> 32, judged)) : NO_HIT;
}

/* Adds the counts since the last flush to the totals and to the rule. Only for the CPU that owns the tally.
 */
__noinline int flush_owned(struct flow *flow, struct tally *tally, __u64 now_ns)
{
	__u64 packets = 0, bytes = 0;
	__u32 idle;

	if (!flow || !tally)
		return 0;
	complete_tally(flow, tally, now_ns);
#pragma unroll
	for (int side = 0; side < 2; side++) {
		__u32 seen = READ_ONCE(flow->packets[side]), carried = READ_ONCE(flow->bytes[side]);
		/* Negative if a late plain store undid a count. */
		__s64 more_packets = (__s32)(seen - tally->folded_packets[side]);
		__s64 more_bytes = (__s32)(carried - tally->folded_bytes[side]);

		tally->folded_packets[side] = seen;
		tally->folded_bytes[side] = carried;
		tally->total_packets[side] += more_packets;
		tally->total_bytes[side] += more_bytes;
		packets += more_packets;
		bytes += more_bytes;
	}
	if (!packets)
		return 0;
	idle = ticks_of(now_ns) - flow->last_seen;
	if ((__s32)idle < 0) /* another CPU has a later clock */
		idle = 0;
	add_hit(tally->hit, tally->hit_check, packets, bytes, now_ns - ((__u64)idle << TICK_SHIFT));
	return 0;
}

/* Ends a flow that no lookup finds any more, and whose tally this CPU owns. `ended_by` is as in report_flow.
 */
__noinline int finish_flow(__u32 slot, __u64 now_ns, __u64 ended_by)
{
	struct tally *tally = tally_at(slot);
	struct flow *flow = flow_at(slot);

	if (!flow || !tally)
		return 0;
	flush_owned(flow, tally, now_ns);
	report_flow(flow, tally, EVENT_FLOW_ENDED, now_ns, ended_by);
	release(flow, tally, slot);
	return 0;
}

/* Results of an attempt to flush a flow. */
enum flush {
	FLUSH_NONE = 0,   /* another CPU flushes it, or the line has another flow */
	FLUSH_OWNED = 1, /* this CPU owns the tally from now on */
	FLUSH_END = 2,   /* another CPU left the end of the flow to this one: call `finish_flow` */
};

static __always_inline enum flush finish_flush(struct flow *flow)
{
	__u32 both = (FLOW_FLUSHING | FLOW_ENDING) << 8;

	return (__sync_fetch_and_and(vital_word(flow), ~(FLOW_FLUSHING << 8)) & both) == both ? FLUSH_END : FLUSH_NONE;
}

/* `rest` is the second word of the key of the flow. If the flow is ending, the bit has no effect, and the
 * next flow overwrites it.
 */
static __always_inline enum flush begin_flush(struct flow *flow, __u64 rest)
{
	__u32 either = (FLOW_FLUSHING | FLOW_ENDING) << 8;

	if (READ_ONCE(*rest_of(flow)) != rest || __sync_fetch_and_or(vital_word(flow), FLOW_FLUSHING << 8) & either)
		return FLUSH_NONE;
	return READ_ONCE(*rest_of(flow)) == rest ? FLUSH_OWNED : finish_flush(flow);
}

#define FLUSH_SPINS 64

/* As begin_flush, but waits some microseconds if another CPU flushes the flow. The wait is bounded, since
 * that CPU may have been preempted.
 */
__noinline enum flush await_flush(struct flow *flow, __u64 rest)
{
	if (!flow)
		return FLUSH_NONE;
	for (int looks = 0; looks < FLUSH_SPINS && is_being_flushed(flow); looks++)
		bpf_ktime_get_ns(); /* called for the time that it takes */
	return begin_flush(flow, rest);
}

/* Flushes the flow whose key has this second word, unless another CPU does, or it has gone. Returns
 * FLUSH_END or FLUSH_NONE.
 */
__noinline enum flush try_flush(__u32 slot, __u64 rest, __u64 now_ns)
{
	struct tally *tally = tally_at(slot);
	struct flow *flow = flow_at(slot);
	enum flush flush;

	if (!flow || !tally)
		return FLUSH_NONE;
	flush = begin_flush(flow, rest);
	if (flush != FLUSH_OWNED)
		return flush;
	flush_owned(flow, tally, now_ns);
	return finish_flush(flow);
}

static __always_inline void flush_flow(__u32 slot, __u64 rest, __u64 now_ns)
{
	if (try_flush(slot, rest, now_ns) == FLUSH_END)
		finish_flow(slot, now_ns, ENDED_BY_ITSELF);
}

/* Returns true if another CPU flushes the claimed flow, and will end it. */
static __always_inline bool is_left_to_flusher(struct flow *flow)
{
	return __sync_fetch_and_or(vital_word(flow), FLOW_ENDING << 8) & FLOW_FLUSHING << 8;
}

/* Returns false if the slot has another flow by now. If another CPU flushes the flow and so ends it,
 * `ended_by` is not reported.
 */
__noinline bool end_flow(__u32 slot, const struct flow_key *key, __u64 now_ns, __u64 ended_by)
{
	struct flow *flow = flow_at(slot);
	__u64 rest;

	if (!flow || !key || !same_key(&flow->key, key))
		return false;
	rest = ((const __u64 *)key)[1];
	/* Before the flow is unlinked, so that its counts are in the hits by then, however long the rest
	 * takes.
	 */
	if (try_flush(slot, rest, now_ns) == FLUSH_END) {
		finish_flow(slot, now_ns, ended_by);
		return true;
	}
	if (!claim(flow, rest))
		return false;
	if (!is_left_to_flusher(flow))
		finish_flow(slot, now_ns, ended_by);
	return true;
}

/* Makes a half-open flow an established one. Returns false if it stays half open: its source has reached
 * its share, another CPU flushes or evicts it, or the line has another flow by now. The next packet that
 * confirms the flow tries again.
 */
__noinline bool confirm_flow(__u32 slot, const struct flow_key *key, __u64 now_ns)
{
	struct flow *flow = flow_at(slot);
	bool confirmed = false;
	enum flush flush;

	if (!flow || !key || is_over_share(opener_of(key, flow->flags), flow->flags))
		return false;
	flush = await_flush(flow, ((const __u64 *)key)[1]);
	if (flush == FLUSH_OWNED) {
		if (same_key(&flow->key, key) && take_mark(slot)) {
			__sync_fetch_and_and(vital_word(flow), ~(FLOW_HALF_OPEN << 8));
			count_established(key, flow->flags, 1);
			count(COUNT_FLOWS_OPENED);
		}
		confirmed = !(READ_ONCE(flow->flags) & FLOW_HALF_OPEN);
		flush = finish_flush(flow);
	}
	if (flush == FLUSH_END)
		finish_flow(slot, now_ns, ENDED_BY_ITSELF);
	return confirmed;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLUSH_H
#define WEIR_FLUSH_H

/* Each flow counts packets and bytes by 32-bit counters in its cache line of `flows`. A flush adds these
 * counters to the 64-bit statistics of the flow and to the hits of its rule. Only one CPU at a time flushes a
 * flow: this CPU sets FLOW_FLUSHING in the flags, and then checks that the cache line still has the same
 * flow. A second CPU that wants to end the flow meanwhile sets FLOW_ENDING, and the first CPU then ends the
 * flow. The second CPU does not wait, because the kernel may have preempted the first CPU's task.
 */

/* Returns the time when a flow opened, computed from the 16-bit field `opened`. The result is at most seven
 * minutes ago, because the field wraps. If the clock of this CPU is behind, `opened` can be in the future;
 * the result is then the present time.
 */
static __always_inline __u64 opened_at(const struct flow *flow, __u64 now_ns)
{
	__u64 now = now_ns >> OPENED_SHIFT;
	__u16 ago = now - flow->opened;

	return (now - (ago < 0xc000 ? ago : 0)) << OPENED_SHIFT;
}

static __always_inline __u32 *state_and_flags(struct flow *flow)
{
	return (__u32 *)&flow->state;
}

static __always_inline bool is_being_flushed(struct flow *flow)
{
	return READ_ONCE(*state_and_flags(flow)) & FLOW_FLUSHING << 8;
}

/* Fills in the fields of the statistics that the packet which opened the flow may have left at 0 (struct
 * tally): the opening time and the entry of `hits`.
 */
static __always_inline void complete_tally(struct flow *flow, struct tally *tally, __u64 now_ns)
{
	__u64 judgement;

	if (!tally->opened_ns)
		tally->opened_ns = opened_at(flow, now_ns);
	if (*hit_in(tally))
		return;
	judgement = READ_ONCE(flow->judgement);
	/* A foreign flow (which no rule decided), or a flow that another datapath classified, has an active word of
	 * 0 in `judgement`. The rule of such a flow is unknown, so its packets count for no entry of `hits`.
	 */
	*hit_in(tally) = judgement >> 32 ? packed_hit(hit_of(judgement >> 32, judgement)) : NO_HIT;
}

/* Adds the packets and bytes since the last flush to the statistics of the flow and to the hits of its rule.
 * The caller must own the statistics: it has set FLOW_FLUSHING, or has claimed the cache line.
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
		__u32 seen = READ_ONCE(flow->packets[side]), seen_bytes = READ_ONCE(flow->bytes[side]);
		__s64 more_packets = since_flush(seen, tally->folded_packets[side]);
		__s64 more_bytes = since_flush(seen_bytes, tally->folded_bytes[side]);

		tally->folded_packets[side] = seen;
		tally->folded_bytes[side] = seen_bytes;
		tally->total_packets[side] += more_packets;
		tally->total_bytes[side] += more_bytes;
		packets += more_packets;
		bytes += more_bytes;
	}
	if (!packets)
		return 0;
	idle = ticks_of(now_ns) - flow->last_seen;
	if ((__s32)idle < 0) /* `last_seen` is later than `now_ns`, because another CPU with a later clock stored it */
		idle = 0;
	add_hit(tally->hit, tally->hit_check, packets, bytes, now_ns - ((__u64)idle << TICK_SHIFT));
	return 0;
}

/* Flushes and reports a flow, and then frees its cache line. The caller must have claimed the cache line, so
 * that no search finds the flow, and must own the statistics. `ended_by`: see events.h.
 */
__noinline int finish_flow(__u32 slot, __u64 now_ns, __u64 ended_by)
{
	struct tally *tally = tally_at(slot);
	struct flow *flow = flow_at(slot);

	if (!flow || !tally)
		return 0;
	flush_owned(flow, tally, now_ns);
	report_ended(flow, tally, now_ns, ended_by);
	release(flow, tally, slot);
	return 0;
}

/* The result of an attempt to begin or finish a flush (the addition of a flow's counters to its statistics).
 */
enum flush {
	FLUSH_NONE = 0,   /* nothing to do: another CPU flushes the flow, the cache line has another flow, or the flush is finished */
	FLUSH_OWNED = 1, /* this CPU owns the statistics until it calls `finish_flush` */
	FLUSH_END = 2,   /* another CPU tried to end the flow during the flush: this CPU must call `finish_flow` to end it */
};

static __always_inline enum flush finish_flush(struct flow *flow)
{
	__u32 both = (FLOW_FLUSHING | FLOW_ENDING) << 8;

	return (__sync_fetch_and_and(state_and_flags(flow), ~(FLOW_FLUSHING << 8)) & both) == both ? FLUSH_END : FLUSH_NONE;
}

/* Makes this CPU the only CPU that flushes the flow. `rest` is the last word of the flow key. If
 * another CPU already ends the flow, FLOW_FLUSHING stays set without effect, and the next flow in the cache
 * line overwrites the flags.
 */
static __always_inline enum flush begin_flush(struct flow *flow, __u64 rest)
{
	__u32 either = (FLOW_FLUSHING | FLOW_ENDING) << 8;

	if (READ_ONCE(*rest_of(flow)) != rest || __sync_fetch_and_or(state_and_flags(flow), FLOW_FLUSHING << 8) & either)
		return FLUSH_NONE;
	return READ_ONCE(*rest_of(flow)) == rest ? FLUSH_OWNED : finish_flush(flow);
}

#define FLUSH_SPINS 64

/* Begins a flush like `begin_flush`, but first waits some microseconds while another CPU flushes the flow.
 * The wait has a limit, because the kernel may have preempted the task on the other CPU.
 */
__noinline enum flush await_flush(struct flow *flow, __u64 rest)
{
	if (!flow)
		return FLUSH_NONE;
	for (int looks = 0; looks < FLUSH_SPINS && is_being_flushed(flow); looks++)
		bpf_ktime_get_ns(); /* serves as a short delay; the result is not used */
	return begin_flush(flow, rest);
}

/* Flushes a flow. `rest` is the last word of its flow key. Does nothing if another CPU flushes
 * the flow, or if the cache line has another flow. Returns FLUSH_END or FLUSH_NONE.
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

/* Marks a claimed flow as ending. Returns true if another CPU flushes the flow at this moment. That CPU then
 * ends the flow, so the caller must not end it.
 */
static __always_inline bool is_left_to_flusher(struct flow *flow)
{
	return __sync_fetch_and_or(state_and_flags(flow), FLOW_ENDING << 8) & FLOW_FLUSHING << 8;
}

/* Ends a flow. Returns false if the flow slot has another flow by now. `ended_by`: see events.h. If
 * another CPU flushes the flow at the same time, that CPU ends the flow and does not report `ended_by`.
 */
__noinline bool end_flow(__u32 slot, const struct flow_key *key, __u64 now_ns, __u64 ended_by)
{
	struct flow *flow = flow_at(slot);
	__u64 rest;

	if (!flow || !key || !same_key(&flow->key, key))
		return false;
	rest = rest_of_key(key);
	/* Flush before the claim hides the flow from searches: a reader of the hits must find the flow's packets
	 * either in `flows` or in the hits, even if this CPU is delayed here.
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

/* Turns a half-open flow into an established flow. Returns false if the flow stays half open: the source has
 * reached its limit of established flows, another CPU flushes or evicts the flow, or the cache line has
 * another flow by now. The next packet that can confirm the flow tries again.
 */
__noinline bool confirm_flow(__u32 slot, const struct flow_key *key, __u64 now_ns)
{
	struct flow *flow = flow_at(slot);
	bool confirmed = false;
	enum flush flush;

	if (!flow || !key || is_over_share(opener_of(key, flow->flags), flow->flags))
		return false;
	flush = await_flush(flow, rest_of_key(key));
	if (flush == FLUSH_OWNED) {
		if (same_key(&flow->key, key) && take_mark(slot)) {
			__sync_fetch_and_and(state_and_flags(flow), ~(FLOW_HALF_OPEN << 8));
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

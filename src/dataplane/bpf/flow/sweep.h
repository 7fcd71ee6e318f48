/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SWEEP_H
#define WEIR_SWEEP_H

#define CLOCK_MONOTONIC 1
#define EBUSY 16

/* The sweep is the periodic walk over the flow table, by a BPF timer. The pause after a run is at least
 * SWEEP_SHARE times as long as the run. So the sweep uses about 1 % of one CPU at most, whatever the size of
 * the flow table.
 */
#define SWEEP_SHARE 100

/* Number of flow sets that one run of the sweep timer visits; packets on this CPU wait for the end of a run.
 */
#define SWEEP_PART 1024

struct sweep_state {
	__u64 now;
	__u32 from;
	__u32 flows;
	__u32 half_open;
	__u32 reserved;
};

static __always_inline __u32 sets_of_flows(void)
{
	return 1U << settings.flow_shift;
}

static __always_inline void forget_old_hops(__u32 *hops, __u64 now)
{
	__u32 seen = READ_ONCE(*hops);

	if (seen && !are_fresh(seen, now))
		__sync_val_compare_and_swap(hops, seen, 0);
}

/* Ends the flow in a flow slot if it has expired; otherwise flushes its counters. Returns whether the flow
 * slot still has a flow.
 */
__noinline bool sweep_slot(__u32 slot, __u64 now)
{
	struct tally *tally = tally_at(slot);
	struct flow *flow = flow_at(slot);
	struct flow_key key;

	if (!flow || !tally)
		return false;
	key = flow->key;
	if (key.use != KEY_USED)
		return false;
	if (is_expired(flow, ticks_of(now))) {
		end_flow(slot, &key, now, ENDED_BY_ITSELF);
		return false;
	}
	/* Clear next hops that are too old to be used. Otherwise an old next hop would look fresh again when its
	 * 10-bit time wraps, after 275 s.
	 */
	if (settings.direct)
		forget_old_hops(&flow->hops, now);
	if (flow->packets[0] != tally->folded_packets[0] || flow->packets[1] != tally->folded_packets[1])
		flush_flow(slot, rest_of_key(&key), now);
	return true;
}

static long sweep_one(__u32 index, struct sweep_state *state)
{
	__u32 set = state->from + index;
	__u64 *tags, taken, seen;

	if (set >= sets_of_flows())
		return 1;
	tags = tags_at(set);
	if (!tags)
		return 1;
	seen = READ_ONCE(*tags);
	taken = ways_with(seen, 0) ^ HALF_OPEN_MARKS;
	for (int tries = 0; tries < FLOW_WAYS && taken; tries++, taken &= taken - 1) {
		__u32 way = lowest_way(taken) & (FLOW_WAYS - 1);

		if (!sweep_slot(set | way << settings.flow_shift, state->now))
			continue;
		if (seen & mark_of(way))
			state->half_open += 1;
		else
			state->flows += 1;
	}
	return 0;
}

static __always_inline void store_vitals(__u64 now, __u64 took, __u32 flow_count, __u32 half_open_count)
{
	__u32 first = 0;
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (!seen)
		return;
	seen->flows = flow_count;
	seen->half_open = half_open_count;
	seen->swept_ns = now;
	seen->sweep_took_ns = took;
}

/* The callback of the sweep timer. Ends expired flows, and flushes the counters of the other flows. Each run
 * visits the next SWEEP_PART flow sets. The run that reaches the end of the flow table stores the results in
 * `vitals`.
 */
static int sweep_by_timer(void *map, __u32 *key, struct sweep_timer *sweep_timer)
{
	struct sweep_state state = { .now = bpf_ktime_get_ns(), .from = sweep_timer->next };
	__u64 took, pause, parts = (sets_of_flows() + SWEEP_PART - 1) / SWEEP_PART;

	bpf_loop(SWEEP_PART, sweep_one, &state, 0);
	took = bpf_ktime_get_ns() - state.now;
	sweep_timer->flows += state.flows;
	sweep_timer->half_open += state.half_open;
	sweep_timer->took_ns += took;
	sweep_timer->next += SWEEP_PART;
	if (sweep_timer->next >= sets_of_flows()) {
		store_vitals(state.now, sweep_timer->took_ns, sweep_timer->flows, sweep_timer->half_open);
		sweep_timer->next = sweep_timer->flows = sweep_timer->half_open = 0;
		sweep_timer->took_ns = 0;
	}
	pause = SECOND_NS / parts;
	bpf_timer_start(&sweep_timer->timer, pause > took * SWEEP_SHARE ? pause : took * SWEEP_SHARE, 0);
	return 0;
}

/* Starts the sweep timer. The timer runs while the map `sweep` is pinned, even without a process. If another
 * BPF object is loaded with the same map, this function replaces the callback of the running timer.
 */
SEC("syscall")
int weir_start_sweep(void *ctx)
{
	__u32 first = 0;
	struct sweep_timer *sweep_timer = bpf_map_lookup_elem(&sweep, &first);
	long failed;

	if (!sweep_timer)
		return 1;
	failed = bpf_timer_init(&sweep_timer->timer, &sweep, CLOCK_MONOTONIC);
	if (failed && failed != -EBUSY /* EBUSY: an earlier BPF object has already initialized the timer */)
		return failed;
	if (bpf_timer_set_callback(&sweep_timer->timer, sweep_by_timer))
		return 3;
	return bpf_timer_start(&sweep_timer->timer, SECOND_NS, 0) ? 4 : 0;
}

/* Sweeps the whole flow table in one run. Afterwards the hits also include the packets that only the flows
 * had counted before.
 */
SEC("syscall")
int weir_sweep(void *ctx)
{
	struct sweep_state state = { .now = bpf_ktime_get_ns() };

	bpf_loop(sets_of_flows(), sweep_one, &state, 0);
	store_vitals(state.now, bpf_ktime_get_ns() - state.now, state.flows, state.half_open);
	return 0;
}

struct cut_request {
	struct flow_key key;
	__u32 found;
	__u32 reserved;
};

/* Ends the flow that has the key in the request, and stores in `found` whether there was such a flow. */
SEC("syscall")
int weir_cut(struct cut_request *request)
{
	struct flow_key key = request->key;

	key.use = KEY_USED;
	request->found = end_flow(find_slot(&key, hash_of_key(&key)), &key, bpf_ktime_get_ns(), ENDED_BY_CUT);
	return 0;
}

#endif

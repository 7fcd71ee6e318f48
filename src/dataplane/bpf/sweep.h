/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SWEEP_H
#define WEIR_SWEEP_H

#define CLOCK_MONOTONIC 1
#define EBUSY 16

/* A sweep takes at most one part in so many of a CPU, however large the tables are. */
#define SWEEP_SHARE 100

struct sweep_state {
	__u64 now;
	__u32 flows;
	__u32 how; /* of end_flow */
};

static long sweep_flow(void *map, struct flow_key *key, struct flow *flow, struct sweep_state *state)
{
	if (!(state->how & END_HALF))
		sync_cached(flow);
	if (is_expired(flow, ticks_of(state->now))) {
		end_flow(flow, key, state->how, state->now);
		return 0;
	}
	state->flows += 1;
	if (flow->packets[0] != flow->folded_packets[0] || flow->packets[1] != flow->folded_packets[1])
		fold_flow(flow, state->now);
	return 0;
}

/* Ends what is past its time-out, and folds what the others carried into the hits of their rules. */
static __noinline __u64 sweep_tables(__u32 how)
{
	struct sweep_state state = { .now = bpf_ktime_get_ns(), .how = how };
	__u32 first = 0;
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (!seen)
		return 0;
	bpf_for_each_map_elem(&flows, sweep_flow, &state, 0);
	seen->flows = state.flows;
	state.flows = 0;
	state.how |= END_HALF;
	bpf_for_each_map_elem(&half_open, sweep_flow, &state, 0);
	seen->half_open = state.flows;
	seen->swept_ns = state.now;
	return seen->sweep_took_ns = bpf_ktime_get_ns() - state.now;
}

static int sweep_by_timer(void *map, __u32 *key, struct sweep_timer *sweep_timer)
{
	__u64 pause = sweep_tables(0) * SWEEP_SHARE;

	bpf_timer_start(&sweep_timer->timer, pause > SECOND_NS ? pause : SECOND_NS, 0);
	return 0;
}

/* Goes on for as long as the map is pinned, without a process; a later program takes the timer over. */
SEC("syscall")
int weir_start_sweep(void *ctx)
{
	__u32 first = 0;
	struct sweep_timer *sweep_timer = bpf_map_lookup_elem(&sweep, &first);
	long failed;

	if (!sweep_timer)
		return 1;
	failed = bpf_timer_init(&sweep_timer->timer, &sweep, CLOCK_MONOTONIC);
	if (failed && failed != -EBUSY /* one that was taken over */)
		return 2;
	if (bpf_timer_set_callback(&sweep_timer->timer, sweep_by_timer))
		return 3;
	return bpf_timer_start(&sweep_timer->timer, SECOND_NS, 0) ? 4 : 0;
}

/* Sweeps now, so that hits are those of this moment. */
SEC("syscall")
int weir_sweep(void *ctx)
{
	sweep_tables(END_IN_PROCESS);
	return 0;
}

struct cut_request {
	struct flow_key key;
	__u32 found;
	__u32 reserved;
};

/* Ends the flow that has this key. */
SEC("syscall")
int weir_cut(struct cut_request *request)
{
	struct flow_key key = request->key;
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	bool half = !flow;

	if (half)
		flow = bpf_map_lookup_elem(&half_open, &key);
	request->found = flow != 0;
	if (flow)
		end_flow(flow, &key, END_IN_PROCESS | (half ? END_HALF : 0), bpf_ktime_get_ns());
	return 0;
}

#endif

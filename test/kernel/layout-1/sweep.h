/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SWEEP_H
#define WEIR_SWEEP_H

#define CLOCK_MONOTONIC 1

/* A sweep uses at most 1/SWEEP_SHARE of one CPU, whatever the size of the flow table. */
#define SWEEP_SHARE 100

static long sweep_flow(void *map, struct flow_key *key, struct flow *flow, __u64 *now)
{
	if (is_expired(flow, *now))
		close_flow(key);
	return 0;
}

static int sweep_flows(void *map, __u32 *key, struct sweep_timer *sweep_timer)
{
	__u64 now = bpf_ktime_get_ns(), pause;

	bpf_for_each_map_elem(&flows, sweep_flow, &now, 0);
	pause = (bpf_ktime_get_ns() - now) * SWEEP_SHARE;
	bpf_timer_start(&sweep_timer->timer, pause > SECOND_NS ? pause : SECOND_NS, 0);
	return 0;
}

/* Starts the sweep timer. The timer runs while the map `sweep` is pinned, even without a process. A later
 * BPF program with the same map takes the timer over.
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
	if (failed && failed != -16 /* -16 is -EBUSY: an earlier BPF program has already initialized the timer */)
		return 2;
	if (bpf_timer_set_callback(&sweep_timer->timer, sweep_flows))
		return 3;
	return bpf_timer_start(&sweep_timer->timer, SECOND_NS, 0) ? 4 : 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SWEEP_H
#define WEIR_SWEEP_H

#define CLOCK_MONOTONIC 1

/* A sweep takes at most one part in so many of a CPU, however large the table is. */
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
	if (failed && failed != -16 /* EBUSY: a timer that was taken over */)
		return 2;
	if (bpf_timer_set_callback(&sweep_timer->timer, sweep_flows))
		return 3;
	return bpf_timer_start(&sweep_timer->timer, SECOND_NS, 0) ? 4 : 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

struct clock {
	__u64 jiffies;
	__u64 now_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clock SEC(".maps");

/* Returns the monotonic clock as of the last kernel tick or the tick before. Each CPU reads the clock only
 * once per tick, because the helper call costs as much as a cache miss; the kernel inlines the read of
 * jiffies. The result on another CPU may be ahead by up to one tick. So use a signed difference to compare
 * the result with a time that another CPU stored. Does not call bpf_ktime_get_coarse_ns, because a netfilter
 * program (the forward judge) may not.
 */
static __always_inline __u64 coarse_ns(void)
{
	__u32 first = 0;
	struct clock *kept = bpf_map_lookup_elem(&clock, &first);
	__u64 jiffies = bpf_jiffies64();

	if (!kept)
		return bpf_ktime_get_ns();
	if (kept->jiffies != jiffies) {
		kept->now_ns = bpf_ktime_get_ns();
		kept->jiffies = jiffies;
	}
	return kept->now_ns;
}

#endif

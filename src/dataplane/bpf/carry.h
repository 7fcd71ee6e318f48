/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CARRY_H
#define WEIR_CARRY_H

/* Runs to its end on one CPU, and what packets add there is added between two instructions: nothing is lost. */
SEC("syscall")
int weir_carry(struct carry_request *request)
{
	__u32 index = request->index;
	struct counter *counter = bpf_map_lookup_elem(&counters, &index);

	if (!counter)
		return 1;
	__sync_fetch_and_add(&counter->packets, request->counter.packets);
	__sync_fetch_and_add(&counter->bytes, request->counter.bytes);
	return 0;
}

/* Adds the counts of an entry for the same flow, which nobody counts in any more. What that one did not fold goes to its rule
 * here, so that `packets`, which wraps, is left alone.
 */
static __always_inline void merge_counts(struct flow *into, const struct flow *from, __u64 now)
{
	__u32 swapped = (into->flags ^ from->flags) & FLOW_OPENED_BY_HIGH, packets[2];

	packets[0] = from->packets[0] - from->folded_packets[0];
	packets[1] = from->packets[1] - from->folded_packets[1];
	add_hit(from->hit, from->hit_check, (__u64)packets[0] + packets[1],
		from->bytes[0] - from->folded_bytes[0] + from->bytes[1] - from->folded_bytes[1], now);
#pragma unroll
	for (int side = 0; side < 2; side++) {
		__u64 total = from->folded_total[side] + packets[side], bytes = from->bytes[side];

		if (swapped ? !side : side) {
			__sync_fetch_and_add(&into->folded_total[1], total);
			__sync_fetch_and_add(&into->folded_bytes[1], bytes);
			__sync_fetch_and_add(&into->bytes[1], bytes);
		} else {
			__sync_fetch_and_add(&into->folded_total[0], total);
			__sync_fetch_and_add(&into->folded_bytes[0], bytes);
			__sync_fetch_and_add(&into->bytes[0], bytes);
		}
	}
	if (from->opened_ns < into->opened_ns)
		into->opened_ns = from->opened_ns;
}

SEC("syscall")
int weir_carry_flow(struct carry_flow_request *request)
{
	struct flow carried = request->flow, *flow, *opening;
	__u64 now = bpf_ktime_get_ns();

	if (request->half) {
		request->carried = bpf_map_update_elem(&half_open, &carried.key, &carried, BPF_NOEXIST) == 0;
		return 0;
	}
	request->carried = bpf_map_update_elem(&flows, &carried.key, &carried, BPF_NOEXIST) == 0;
	flow = bpf_map_lookup_elem(&flows, &carried.key);
	if (!flow)
		return 0;
	if (!request->carried)
		merge_counts(flow, &carried, now);
	/* Its next packet opened it here before. */
	opening = bpf_map_lookup_elem(&half_open, &carried.key);
	if (opening) {
		merge_counts(flow, opening, now);
		bpf_map_delete_elem(&half_open, &carried.key);
	}
	return 0;
}

#endif

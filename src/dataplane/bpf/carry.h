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
static __always_inline void merge_counts(const struct flow *into, struct tally *sum, const struct flow *from,
				    const struct tally *more, __u64 now)
{
	__u64 packets = 0, bytes = 0;
	__u32 swapped;

	if (!into || !sum || !from || !more)
		return;
	swapped = (into->flags ^ from->flags) & FLOW_OPENED_BY_HIGH;
#pragma unroll
	for (int side = 0; side < 2; side++) {
		__u32 more_packets = from->packets[side] - more->folded_packets[side];
		__u32 more_bytes = from->bytes[side] - more->folded_bytes[side];

		__sync_fetch_and_add(&sum->total_packets[(side ^ swapped) & 1], more->total_packets[side] + more_packets);
		__sync_fetch_and_add(&sum->total_bytes[(side ^ swapped) & 1], more->total_bytes[side] + more_bytes);
		packets += more_packets;
		bytes += more_bytes;
	}
	add_hit(more->hit, more->hit_check, packets, bytes, now);
	if (more->opened_ns < sum->opened_ns)
		sum->opened_ns = more->opened_ns;
}

static __always_inline __u32 vital_of(const struct flow *flow)
{
	return flow->state | flow->flags << 8;
}

/* Writes a flow into a line that was claimed for it. */
static __always_inline bool place_carried(__u32 slot, const struct carry_flow_request *request, const struct flow_key *key)
{
	struct tally *tally = tally_at(slot);
	struct flow *flow = flow_at(slot);

	if (slot == NO_SLOT || !flow || !tally)
		return false;
	__builtin_memcpy(&flow->judgement, &request->flow.judgement,
			 __builtin_offsetof(struct flow, hops) - __builtin_offsetof(struct flow, judgement));
	flow->hops[0] = flow->hops[1] = 0;
	flow->flags = (flow->flags & ~FLOW_HALF_OPEN) | (request->half ? FLOW_HALF_OPEN : 0);
	*tally = request->tally;
	publish(flow, key);
	return true;
}

SEC("syscall")
int weir_carry_flow(struct carry_flow_request *request)
{
	struct flow_key key = request->flow.key;
	__u64 now = bpf_ktime_get_ns(), hash;
	struct flow *flow;
	__u32 slot, to, half;

	key.use = KEY_USED;
	hash = hash_of_key(&key);
	request->carried = 0;
	slot = find_slot(&key, hash);
	flow = flow_at(slot);
	if (request->again) {
		if (!flow)
			return 0;
		merge_counts(flow, tally_at(slot), &request->flow, &request->tally, now);
		/* Unless it has gone on here too. Whether it is half open is said by its mark. */
		half = (flow->flags & FLOW_HALF_OPEN) << 8;
		__sync_val_compare_and_swap((__u32 *)&flow->state, (request->vital & ~(FLOW_HALF_OPEN << 8)) | half,
					    (vital_of(&request->flow) & ~(FLOW_HALF_OPEN << 8)) | half);
		return 0;
	}
	if (request->half) {
		if (!flow)
			request->carried = place_carried(claim_line(hash, true, now), request, &key);
		return 0;
	}
	if (flow && !(slot & HALF_OPEN)) {
		merge_counts(flow, tally_at(slot), &request->flow, &request->tally, now);
		return 0;
	}
	to = claim_line(hash, false, now);
	request->carried = place_carried(to, request, &key);
	/* Its next packet opened it here before, unless it was just that which made room. */
	if (flow && request->carried && to != (slot & ~HALF_OPEN) && same_key(&flow->key, &key)) {
		struct flow *into = flow_at(to);

		if (into)
			merge_counts(into, tally_at(to), flow, tally_at(slot), now);
		if (claim(flow, ((const __u64 *)&key)[1]))
			release(flow, slot);
	}
	return 0;
}

#endif

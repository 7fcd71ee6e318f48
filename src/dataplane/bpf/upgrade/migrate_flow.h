/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_MIGRATE_FLOW_H
#define WEIR_MIGRATE_FLOW_H

/* Adds the counts of the predecessor datapath to one counter of this CPU. Uses atomic additions, because a
 * packet can interrupt this function and add to the same counter.
 */
SEC("syscall")
int weir_migrate_count(struct migrate_count_request *request)
{
	__u32 index = request->index;
	struct counter *counter = bpf_map_lookup_elem(&counters, &index);

	if (!counter)
		return 1;
	__sync_fetch_and_add(&counter->packets, request->counter.packets);
	__sync_fetch_and_add(&counter->bytes, request->counter.bytes);
	return 0;
}

/* Adds the counts of `from`, another entry for the same flow, to the flow in `slot`. Packets must not be
 * counted in `from` any more, and `complete_tally` must have filled in the statistics `more`. The packets
 * that `from` has not flushed count as hits of its rule. The 32-bit counters of the flow in `slot` do not
 * change. If that flow ends or another CPU keeps flushing it, its statistics do not include the counts of
 * `from`.
 */
static __always_inline void merge_counts(__u32 slot, const struct flow *from, const struct tally *more, __u64 rest, __u64 now)
{
	struct tally *sum = tally_at(slot);
	struct flow *into = flow_at(slot);
	__u64 packets = 0, bytes = 0;
	__u32 swapped;
	enum flush flush;

	if (!into || !sum || !from || !more)
		return;
	flush = await_flush(into, rest);
	swapped = (into->flags ^ from->flags) & FLOW_OPENED_BY_HIGH;
#pragma unroll
	for (int side = 0; side < 2; side++) {
		__s64 more_packets = since_flush(from->packets[side], more->folded_packets[side]);
		__s64 more_bytes = since_flush(from->bytes[side], more->folded_bytes[side]);

		if (flush == FLUSH_OWNED) {
			sum->total_packets[(side ^ swapped) & 1] += more->total_packets[side] + more_packets;
			sum->total_bytes[(side ^ swapped) & 1] += more->total_bytes[side] + more_bytes;
		}
		packets += more_packets;
		bytes += more_bytes;
	}
	add_hit(more->hit, more->hit_check, packets, bytes, now);
	if (flush == FLUSH_OWNED) {
		complete_tally(into, sum, now);
		if (more->opened_ns && more->opened_ns < sum->opened_ns)
			sum->opened_ns = more->opened_ns;
		flush = finish_flush(into);
	}
	if (flush == FLUSH_END)
		finish_flow(slot, now, ENDED_BY_ITSELF);
}

/* Mask of the bits of `state` and `flags` that an upgrade migrates. The mask does not include FLOW_HALF_OPEN,
 * because the half-open mark in the tag word of the new datapath decides whether the flow is half open.
 */
#define VITAL (0xff | (0xff & ~(FLOW_HALF_OPEN | FLOW_FLUSHING | FLOW_ENDING)) << 8)

static __always_inline __u32 vital_of(const struct flow *flow)
{
	return flow->state | flow->flags << 8;
}

/* Sets state and flags of a flow to `to`. Does nothing if state and flags differ from `from`, because a
 * packet in this datapath has changed them.
 */
static __always_inline void change_state_and_flags(struct flow *flow, __u32 from, __u32 to)
{
	__u32 *word = state_and_flags(flow), seen;

	for (int tries = 0; tries < 8; tries++) {
		seen = READ_ONCE(*word);
		if ((seen ^ from) & VITAL || __sync_val_compare_and_swap(word, seen, (seen & ~VITAL) | (to & VITAL)) == seen)
			return;
	}
}

/* Writes a flow of the earlier datapath into the cache line that the caller reserved (claimed). */
static __always_inline bool place_migrated(__u32 slot, const struct migrate_flow_request *request, const struct flow_key *key)
{
	struct tally *tally = tally_at(slot);
	struct flow *flow = flow_at(slot);

	if (slot == NO_SLOT || !flow || !tally)
		return false;
	flow->judgement = request->flow.judgement;
	flow->last_seen = request->flow.last_seen;
	flow->state = request->flow.state;
	flow->opened = request->flow.opened;
	__builtin_memcpy(flow->ifindex, request->flow.ifindex,
			 __builtin_offsetof(struct flow, hops) - __builtin_offsetof(struct flow, ifindex));
	flow->hops = 0;
	WRITE_ONCE(flow->flags, (request->flow.flags & VITAL >> 8) | (request->half ? FLOW_HALF_OPEN : 0));
	*tally = request->tally;
	if (!request->half)
		count_established(key, request->flow.flags, 1); /* pass the key as an argument, because the cache line has no key yet */
	publish(flow, key);
	return true;
}

SEC("syscall")
int weir_migrate_flow(struct migrate_flow_request *request)
{
	struct flow_key key = request->flow.key;
	__u64 now = bpf_ktime_get_ns(), hash, rest;
	struct flow *flow;
	__u32 slot, to, swapped;

	key.use = KEY_USED;
	rest = rest_of_key(&key);
	hash = hash_of_key(&key);
	request->migrated = 0;
	/* Do not migrate a flow with a loopback address, which a datapath with an older layout may contain: the
	 * fast path would pass the packets of that flow.
	 */
	if (is_loopback(key.low_address) || is_loopback(key.high_address))
		return 0;
	slot = find_slot(&key, hash);
	flow = flow_at(slot);
	if (request->mode == MIGRATE_IF_ABSENT && flow)
		return 0;
	if (request->mode == MIGRATE_DELTA) {
		if (!flow)
			return 0;
		merge_counts(slot, &request->flow, &request->tally, rest, now);
		if (same_key(&flow->key, &key)) {
			change_state_and_flags(flow, request->state_and_flags, vital_of(&request->flow));
			swapped = (flow->flags ^ request->flow.flags) & FLOW_OPENED_BY_HIGH;
			for (__u32 side = 0; side < 2; side++)
				if (request->flow.tcp_numbers[side] & FIN_PENDING)
					WRITE_ONCE(flow->tcp_numbers[(side ^ swapped) & 1], request->flow.tcp_numbers[side]);
		}
		return 0;
	}
	if (request->half) {
		if (!flow)
			request->migrated = place_migrated(claim_line(hash, true, now), request, &key);
		return 0;
	}
	if (flow && !(slot & HALF_OPEN)) {
		merge_counts(slot, &request->flow, &request->tally, rest, now);
		return 0;
	}
	to = claim_line(hash, false, now);
	request->migrated = place_migrated(to, request, &key);
	/* If a packet has already opened the same flow as half open in this datapath, add the counts of the
	 * half-open flow to the migrated flow, and free the half-open flow. `claim_line` may have evicted the
	 * half-open flow already.
	 */
	if (flow && request->migrated && to != (slot & ~HALF_OPEN) && same_key(&flow->key, &key)) {
		struct tally *more = tally_at(slot);

		flush_flow(slot, rest, now);
		if (!more || !claim(flow, rest) || is_left_to_flusher(flow))
			return 0;
		complete_tally(flow, more, now);
		merge_counts(to, flow, more, rest, now);
		release(flow, more, slot);
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CLAIM_LINE_H
#define WEIR_CLAIM_LINE_H

/* Returns the same number, of which the verifier then knows no bounds: it does not follow a change of the
 * byte order. With the bounds of the idle times, the verifier checks each order of the flows in `find_room`,
 * and a load of the BPF programs takes a third longer.
 */
static __always_inline __u64 without_bounds(__u64 number)
{
	asm volatile("%0 = be64 %0\n\t%0 = be64 %0" : "+r"(number));
	return number;
}

/* Selects a flow to evict from the eight ways of a flow set: an expired flow, else a suspended flow (denied
 * by a later policy), else a half-open flow. Of several such flows, selects the one that has been idle for
 * longest. Returns the flow slot, and copies the key of the flow to `key`. The result contains HALF_OPEN if
 * the function removed the half-open mark of the flow. Returns NO_SLOT if the set has no such flow, or if
 * another CPU changed the flow or the tag word meanwhile.
 */
__noinline __u32 find_room(__u32 set, struct flow_key *key, __u64 now_ns)
{
	__u64 *tags = tags_at(set), seen, mark, longest = 0; /* idle time << 32 | flow slot */
	__u32 now = ticks_of(now_ns), chosen;
	struct flow *flow;

	if (!tags || !key)
		return NO_SLOT;
	seen = READ_ONCE(*tags);
	for (__u32 way = 0; way < FLOW_WAYS; way++) {
		__u32 slot = set | way << settings.flow_shift, silent;

		flow = flow_at(slot);
		if (!flow || flow->key.use != KEY_USED)
			continue;
		silent = now - flow->last_seen;
		silent = (__s32)silent < 0 ? 1 : silent + 1;
		if (is_expired(flow, now))
			silent |= 1U << 31;
		else if (!(seen & mark_of(way)))
			continue;
		else if (is_suspended(READ_ONCE(flow->judgement)))
			silent |= 1U << 30;
		if (silent > longest >> 32)
			longest = (__u64)silent << 32 | slot;
		longest = without_bounds(longest);
	}
	chosen = longest;
	flow = flow_at(chosen);
	if (!(longest >> 32) || !flow)
		return NO_SLOT;
	*key = flow->key;
	if (key->use != KEY_USED)
		return NO_SLOT;
	asm volatile("" ::: "memory");
	mark = seen & mark_of(way_of_slot(chosen));
	/* Another CPU may have replaced the selected flow since the search. Evict a half-open flow only if the
	 * tag word is unchanged, and an established flow only if the flow in this cache line has expired.
	 */
	if (mark ? __sync_val_compare_and_swap(tags, seen, seen & ~mark) != seen : !is_expired(flow, now))
		return NO_SLOT;
	return chosen | (mark ? HALF_OPEN : 0);
}

/* Evicts one flow of a flow set. Returns false if no flow of the set could be evicted. */
static __always_inline bool make_room(__u32 set, struct flow_key *key, __u64 now_ns)
{
	__u32 slot = find_room(set, key, now_ns);

	return slot != NO_SLOT && end_flow(slot, key, now_ns, ENDED_BY_ITSELF);
}

static __always_inline __u8 tag_with(__u64 hash, bool half)
{
	return tag_of(hash) | (half ? 0x80 : 0);
}

/* Claims a free way in one of the two flow sets of a hash. Selects the second flow set if the first has at
 * least CROWDED ways in use and the second has more free ways. Returns the flow slot, or NO_SLOT if the
 * selected flow set has no free way.
 */
__noinline __u32 claim_available(__u64 hash, bool half)
{
	__u32 set = first_set(hash), other = second_set(hash), slot;
	bool spills = is_to_spill(set, other);

	slot = claim_free(spills ? other : set, tag_with(hash, half));
	if (spills && slot != NO_SLOT)
		mark_spilled(set);
	return slot;
}

/* Claims a free way like `claim_available`, but first tries the tag word (the tags of the eight ways) that
 * the search for the flow has read. So most calls do not read the tag words of both flow sets again.
 */
static __always_inline __u32 claim_by_tags(const struct flow_lookup *flow_lookup)
{
	__u64 seen = flow_lookup->tags, free = ways_with(seen, 0);
	__u32 set = first_set(flow_lookup->hash), way = lowest_way(free) & (FLOW_WAYS - 1);
	__u8 tag = tag_with(flow_lookup->hash, true);
	__u64 *tags = tags_at(set);

	if (tags && ways_in_use_by(seen) < CROWDED &&
	    __sync_val_compare_and_swap(tags, seen, seen | (__u64)(way ? tag : tag & ~SPILLED) << way * 8) == seen)
		return set | way << settings.flow_shift;
	return claim_available(flow_lookup->hash, true);
}

/* Returns whether a new flow evicts a flow of its second flow set (`other`), and not of its first: the first
 * has at least CROWDED established flows, and the second has fewer. Without this choice, a flood of half-open
 * flows would put all established flows into their first flow sets. The fullest sets would then refuse flows
 * long before the table is full.
 */
static __always_inline bool is_to_evict_from(__u32 other, __u32 set)
{
	__u64 *tags = tags_at(set), *other_tags = tags_at(other);
	__u32 held = tags ? ways_without_mark(READ_ONCE(*tags)) : 0;

	return other_tags && held >= CROWDED && ways_without_mark(READ_ONCE(*other_tags)) < held;
}

/* Evicts a flow from the first or second flow set of a hash, and claims the way of the evicted flow.
 * Returns the flow slot, or NO_SLOT if all flows of both sets are established and not expired.
 */
__noinline __u32 claim_with_room(__u64 hash, bool half, __u64 now_ns)
{
	__u32 set = first_set(hash), other = second_set(hash), slot = NO_SLOT;
	struct flow_key key = {};
	bool spills = is_to_evict_from(other, set);

	/* Two tries, because another CPU may claim the way between the eviction and the claim. */
	for (int tries = 0; slot == NO_SLOT && tries < 2; tries++) {
		if (!make_room(spills ? other : set, &key, now_ns)) {
			spills = !spills;
			make_room(spills ? other : set, &key, now_ns);
		}
		slot = claim_freed(spills ? other : set, tag_with(hash, half));
	}
	if (spills && slot != NO_SLOT)
		mark_spilled(set);
	return slot;
}

static __always_inline __u32 claim_line(__u64 hash, bool half, __u64 now_ns)
{
	__u32 slot = claim_available(hash, half);

	return slot == NO_SLOT ? claim_with_room(hash, half, now_ns) : slot;
}

#endif

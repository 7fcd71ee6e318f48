/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_SHARE_H
#define WEIR_FLOW_SHARE_H

/* This file limits the established flows of each source (D18). The datapath never evicts established flows,
 * so without this limit one source could fill the flow table. The limit applies while established flows use
 * more than half of the flow table.
 *
 * The datapath counts a flow once it is established: when `confirm_flow` clears FLOW_HALF_OPEN, or when an
 * upgrade migrates the flow as established. `release` subtracts a flow whose FLOW_HALF_OPEN bit is clear.
 * Only the CPU that set FLOW_FLUSHING changes FLOW_HALF_OPEN of a live flow, so the datapath subtracts a flow
 * exactly as often as it counted the flow. Half-open flows are not counted, because new flows can evict them.
 */
static __always_inline address_argument_t opener_of(const struct flow_key *key, __u8 flags)
{
	return flags & FLOW_OPENED_BY_HIGH ? PASS_ADDRESS(key->high_address) : PASS_ADDRESS(key->low_address);
}

/* Returns the counter of established flows for a source. Foreign flows (which the datapath did not classify)
 * use other counters: their source addresses may be forged, and must not use up the limit of a verified
 * source.
 */
static __always_inline __u32 *share_of(address_t source, __u8 flags)
{
	__u32 at = hash_of(number_of_source(source), flags & FLOW_FOREIGN) >> 40 & (SHARES - 1);

	return bpf_map_lookup_elem(&flow_shares, &at);
}

/* Returns whether a source has reached its limit of established flows. The limit is a fraction of the free
 * flow table. So the limit falls as other sources open flows, and many sources together cannot fill the flow
 * table. Foreign flows cannot use the last quarter of the flow table, because the datapath has not verified
 * their sources. The limit of a verified source is at least one flow.
 */
static __always_inline bool exceeds_share(address_t source, __u8 flags, __u32 total)
{
	__u32 room = settings.share_from * 2, *share = share_of(source, flags), limit;

	if (flags & FLOW_FOREIGN)
		room -= settings.share_from / 2;
	limit = room > total ? (__u64)(room - total) * settings.share_scale >> SHARE_SHIFT : 0;
	if (!limit && !(flags & FLOW_FOREIGN))
		limit = 1;
	return share && READ_ONCE(*share) >= limit;
}

/* Returns whether a new flow of `source` exceeds the limit of that source. `flags` is FLOW_FOREIGN or 0. Not
 * inlined: the callers are at the start of deep call chains, and an inlined copy made these chains exceed the
 * 512 bytes of stack that the verifier of Linux 6.1 allows.
 */
static __noinline bool is_over_share(address_argument_t source, __u8 flags)
{
	__u32 first = 0, total;
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (!seen)
		return false;
	total = READ_ONCE(seen->established);
	return total > settings.share_from && exceeds_share(passed_address(source), flags, total);
}

/* Adds `by` to the number of established flows, of the source and in total. `by` is 1 or -1. */
static __always_inline void count_established(const struct flow_key *key, __u8 flags, __s32 by)
{
	__u32 first = 0, *share = share_of(passed_address(opener_of(key, flags)), flags);
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (share)
		__sync_fetch_and_add(share, by);
	if (seen)
		__sync_fetch_and_add(&seen->established, by);
}

/* Ends the use of a claimed cache line of the flow table. Clears the tag of its way last, so that no CPU
 * claims the cache line before it is free. Sets the statistics of the cache line to zeros, because a new flow
 * expects zeros there.
 */
static __always_inline void release(struct flow *line, struct tally *tally, __u32 slot)
{
	__u32 way = way_of_slot(slot);
	__u64 *tags = tags_at(set_of_slot(slot));

	if (!(READ_ONCE(line->flags) & FLOW_HALF_OPEN)) {
		count_established(&line->key, line->flags, -1);
		count(COUNT_FLOWS_CLOSED);
	}
	__builtin_memset(tally, 0, sizeof(*tally));
	WRITE_ONCE(*rest_of(line), 0);
	asm volatile("" ::: "memory");
	if (tags)
		__sync_fetch_and_and(tags, ~((way ? 0xffULL : 0xffULL - SPILLED) << way * 8));
}

#endif

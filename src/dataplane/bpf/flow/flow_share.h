/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_SHARE_H
#define WEIR_FLOW_SHARE_H

/* Established flows are never evicted, so each source has a limit on them while the table is more than half
 * full (D18). A flow is counted when FLOW_HALF_OPEN is cleared (`confirm_flow`) or when it is migrated as
 * established, and subtracted in `release` if the bit is clear. Between these points the bit changes only
 * under the flush lock, so each flow is subtracted exactly as often as it was counted. Half-open flows are
 * not counted, since they are evicted for others.
 */
static __always_inline __u32 opener_of(const struct flow_key *key, __u8 flags)
{
	return flags & FLOW_OPENED_BY_HIGH ? key->high_address : key->low_address;
}

/* Flows from an interface without policy have counters of their own: their sources are not checked. */
static __always_inline __u32 *share_of(__u32 source, __u8 flags)
{
	__u32 at = hash_of(source, flags & FLOW_FOREIGN) >> 40 & (SHARES - 1);

	return bpf_map_lookup_elem(&flow_shares, &at);
}

/* The limit of a source shrinks with the free part of the table, so many sources together leave a part of
 * it free too. The last quarter is for flows of verified sources; a verified source without an established
 * flow has no limit.
 */
static __always_inline bool exceeds_share(__u32 source, __u8 flags, __u32 total)
{
	__u32 room = settings.share_from * 2, *share = share_of(source, flags), limit;

	if (flags & FLOW_FOREIGN)
		room -= settings.share_from / 2;
	limit = room > total ? (__u64)(room - total) * settings.share_scale >> SHARE_SHIFT : 0;
	if (!limit && !(flags & FLOW_FOREIGN))
		limit = 1;
	return share && READ_ONCE(*share) >= limit;
}

/* `flags`: FLOW_FOREIGN or 0. A function call of its own, since its callers have deep call chains below
 * them: with this function inlined, the sum of their stacks exceeded the limit of Linux 6.1.
 */
static __noinline bool is_over_share(__u32 source, __u8 flags)
{
	__u32 first = 0, total;
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (!seen)
		return false;
	total = READ_ONCE(seen->established);
	return total > settings.share_from && exceeds_share(source, flags, total);
}

/* `by` is 1 or -1. */
static __always_inline void count_established(const struct flow_key *key, __u8 flags, __s32 by)
{
	__u32 first = 0, *share = share_of(opener_of(key, flags), flags);
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (share)
		__sync_fetch_and_add(share, by);
	if (seen)
		__sync_fetch_and_add(&seen->established, by);
}

/* Frees a claimed line and then its way. Leaves the tally as the next flow needs it. */
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

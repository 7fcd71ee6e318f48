/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

/* Established flows are never evicted, so each source has a limit on them (D18). A flow is counted when FLOW_HALF_OPEN is
 * cleared (`confirm_flow`) or when it is carried over as established, and counted off in `release` if the bit is clear. Between
 * these points the bit changes only under the fold lock, so each flow is counted off exactly as often as it was counted.
 * Half-open flows are not counted, since they make room for others.
 */
static __always_inline __u32 opener_of(const struct flow *flow)
{
	return flow->flags & FLOW_OPENED_BY_HIGH ? flow->key.high_address : flow->key.low_address;
}

static __always_inline __u32 *share_of(__u32 source)
{
	__u32 at = hash_of(source, 0) >> 40 & (SHARES - 1);

	return bpf_map_lookup_elem(&flow_shares, &at);
}

static __always_inline bool is_over_share(__u32 source)
{
	__u32 first = 0, *share;
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (!seen || READ_ONCE(seen->established) <= settings.share_from)
		return false;
	share = share_of(source);
	return share && READ_ONCE(*share) >= settings.share_flows;
}

/* `by` is 1 or -1. */
static __always_inline void count_established(const struct flow *flow, __s32 by)
{
	__u32 first = 0, *share = share_of(opener_of(flow));
	struct vitals *seen = bpf_map_lookup_elem(&vitals, &first);

	if (share)
		__sync_fetch_and_add(share, by);
	if (seen)
		__sync_fetch_and_add(&seen->established, by);
}

/* Makes a claimed line nobody's, and then its way. Its tally is left as the next flow needs it. */
static __always_inline void release(struct flow *line, struct tally *tally, __u32 slot)
{
	__u32 way = way_of_slot(slot);
	__u64 *tags = tags_at(set_of_slot(slot));

	if (!(READ_ONCE(line->flags) & FLOW_HALF_OPEN)) {
		count_established(line, -1);
		count(COUNT_FLOWS_CLOSED);
	}
	__builtin_memset(tally, 0, sizeof(*tally));
	WRITE_ONCE(*rest_of(line), 0);
	asm volatile("" ::: "memory");
	if (tags)
		__sync_fetch_and_and(tags, ~((way ? 0xffULL : 0xffULL - SPILLED) << way * 8));
}

#endif

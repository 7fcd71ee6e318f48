/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_HITS_H
#define WEIR_HITS_H

#define RANK_SHIFT 4

static __always_inline struct hit_ref hit_of(__u32 active_word, __u32 word)
{
	__u32 at = word >> RANK_SHIFT;
	struct hit_ref none = {}, *found;

	if (at >= settings.rank_capacity)
		return none;
	if (active_word & 1)
		at += settings.rank_capacity;
	found = bpf_map_lookup_elem(&rank_hits, &at);
	return found ? *found : none;
}

static __always_inline void add_hit(__u32 index, __u32 check, __u64 packets, __u64 bytes, __u64 last_ns)
{
	struct hit *hit = index ? bpf_map_lookup_elem(&hits, &index) : 0;

	if (!hit || (__u32)hit->identity != check)
		return;
	__sync_fetch_and_add(&hit->packets, packets);
	__sync_fetch_and_add(&hit->bytes, bytes);
	if (hit->last_ns < last_ns)
		hit->last_ns = last_ns;
}

#endif

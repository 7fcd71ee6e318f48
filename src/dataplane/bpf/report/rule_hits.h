/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_RULE_HITS_H
#define WEIR_RULE_HITS_H

#define RANK_SHIFT 4

static __always_inline struct hit_ref hit_of(__u32 active_word, __u32 word)
{
	__u32 at = word >> RANK_SHIFT;
	struct hit_ref none = {}, *found;

	if (at >= settings.rank_capacity)
		return none;
	at += slot_of(active_word) * settings.rank_capacity;
	found = bpf_map_lookup_elem(&rank_hits, &at);
	return found ? *found : none;
}

/* Value of `hit` and `hit_check` together, in the statistics of a flow that counts for no entry of `hits`. If
 * the value were 0, each flush would search for the entry again.
 */
#define NO_HIT (1ULL << 32)

/* Returns a `hit_ref` as the 64-bit value that struct tally stores in `hit` and `hit_check`. */
static __always_inline __u64 packed_hit(struct hit_ref ref)
{
	return ref.hit ? (__u64)ref.check << 32 | ref.hit : NO_HIT;
}

static __always_inline __u64 *hit_in(struct tally *tally)
{
	return (__u64 *)&tally->hit;
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

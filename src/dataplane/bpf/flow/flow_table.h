/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_TABLE_H
#define WEIR_FLOW_TABLE_H

/* The flow table is the map `flows`. The table consists of flow sets; each flow set has eight ways, and each
 * way is one cache line with one flow. A seeded hash of the flow key selects a first and a second flow set.
 * Way n of all flow sets is contiguous, so a flow table with few flows uses few memory pages.
 *
 * The map `flow_tags` has a 64-bit tag word for each flow set, with one byte for each way. Apart from the
 * flag SPILLED, the byte is 0 if the way is free. Otherwise the byte contains some bits of the flow's hash,
 * and the half-open mark. A search reads the tag word first, and then only cache lines that probably match. A
 * new flow uses its second flow set if the first is crowded. The datapath then sets the flag SPILLED of the
 * first flow set, and never clears this flag.
 *
 * A CPU claims a way by a compare-and-swap of the tag word, writes the cache line, and writes the flow key
 * last. A reader compares the flow key, reads the other fields, and compares the flow key again, because
 * another CPU may have replaced the flow in between. A flow is half open while its way has the half-open
 * mark. The CPU that removes the half-open mark either confirms the flow or evicts the flow, never both.
 *
 * A flow slot is the index of a cache line in `flows`. In the result of a search, the flow slot contains the
 * bit HALF_OPEN if the way had the half-open mark in the tag word.
 */
#define HALF_OPEN (1U << 31)
#define NO_SLOT 0xffffffffU
#define CROWDED 6
#define EACH_WAY 0x0101010101010101ULL
/* The bits of the tags of all ways in a 64-bit tag word, without the half-open marks and SPILLED */
#define EACH_TAG (EACH_WAY * 0x7f - SPILLED)
/* Bit in the tag of way 0: some flows of this flow set are in their second flow set */
#define SPILLED (1ULL << 6)
#define HALF_OPEN_MARKS (EACH_WAY * 0x80)          /* the half-open mark of each way */

/* The arguments of a search for a flow key, and the tag word (the tags of eight ways) that it reads.
 * `addresses` and `rest` have the layout of struct flow_key: `rest` is the 64-bit word of the key after the
 * addresses.
 */
struct flow_lookup {
	key_addresses_t addresses;
	__u64 rest;
	__u64 hash;
	__u64 tags; /* tag word (tags of the eight ways) of the first flow set, as the search read it */
};

static __always_inline const struct flow_key *lookup_key(const struct flow_lookup *flow_lookup)
{
	return (const struct flow_key *)flow_lookup;
}

static __always_inline key_addresses_t addresses_of_key(const struct flow_key *key)
{
	return *(const key_addresses_t *)key;
}

/* Returns the word of a flow key after its addresses. */
static __always_inline __u64 rest_of_key(const struct flow_key *key)
{
	return *(const __u64 *)((const key_addresses_t *)key + 1);
}

/* Returns the seeded hash of a flow key. `addresses` is a result of `number_of_key_addresses`. */
static __always_inline __u64 hash_of(__u64 addresses, __u64 rest)
{
	__u64 mixed = (addresses ^ (rest + settings.flow_seed) * 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL;

	mixed ^= mixed >> 32;
	mixed *= 0xd6e8feb86659fd93ULL;
	return mixed ^ mixed >> 32;
}

static __always_inline __u64 hash_of_key(const struct flow_key *key)
{
	return hash_of(number_of_key_addresses(addresses_of_key(key)), rest_of_key(key));
}

static __always_inline __u32 first_set(__u64 hash)
{
	return hash >> 40 & ((1U << settings.flow_shift) - 1);
}

static __always_inline __u32 second_set(__u64 hash)
{
	return hash >> 16 & ((1U << settings.flow_shift) - 1);
}

/* Returns the tag for a hash, which is never 0, because a tag of 0 marks a free way. Way 0 has only six
 * tag bits, because the seventh is SPILLED. So at least one of the lower six bits must be set.
 */
static __always_inline __u8 tag_of(__u64 hash)
{
	return (hash & 0x3f) ? hash & 0x7f : 1;
}

static __always_inline bool same_key(const struct flow_key *a, const struct flow_key *b)
{
	return same_key_addresses(addresses_of_key(a), addresses_of_key(b)) && rest_of_key(a) == rest_of_key(b);
}

static __always_inline bool has_key_of(const struct flow *line, const struct flow_lookup *flow_lookup)
{
	return rest_of_key(&line->key) == flow_lookup->rest &&
	       same_key_addresses(addresses_of_key(&line->key), flow_lookup->addresses);
}

static __always_inline __u64 *rest_of(struct flow *line)
{
	return (__u64 *)&line->key.low_port;
}

/* Returns whether a flow has been idle for longer than the time-out of its state. Compares signed numbers,
 * because another CPU may have stored a `last_seen` that is later than `now`.
 */
static __always_inline bool is_expired(const struct flow *flow, __u32 now)
{
	return (__s32)(now - flow->last_seen) > (__s32)settings.timeouts[flow->state & (FLOW_STATES - 1)];
}

/* Returns whether adding `more` bytes changes one of the highest two bits of the 32-bit byte counter. The
 * caller must then flush the counter, so that the counter never wraps between two flushes.
 */
static __always_inline bool is_flush_due(__u32 bytes, __u32 more)
{
	return (bytes ^ (bytes + more)) >> 30;
}

/* Returns a mask of the ways with this tag: the highest bit of each matching byte is set. With tag 0, the
 * mask shows the free ways.
 */
static __always_inline __u64 ways_with(__u64 tags, __u8 tag)
{
	return ~(((tags ^ EACH_WAY * tag) & EACH_TAG) + EACH_WAY * 0x7f) & HALF_OPEN_MARKS;
}

/* Returns the number of the lowest way in `bits`, the result of `ways_with`: bit 7 of byte N for way N. */
static __always_inline __u32 lowest_way(__u64 bits)
{
	return ((bits & -bits) >> 7) * 0x0001020304050607ULL >> 56;
}

static __always_inline __u64 *tags_at(__u32 set)
{
	return bpf_map_lookup_elem(&flow_tags, &set);
}

static __always_inline struct flow *flow_at(__u32 slot)
{
	__u32 at = slot & ~HALF_OPEN;

	return bpf_map_lookup_elem(&flows, &at);
}

static __always_inline struct tally *tally_at(__u32 slot)
{
	__u32 at = slot & ~HALF_OPEN;

	return bpf_map_lookup_elem(&tallies, &at);
}

static __always_inline __u32 way_of_slot(__u32 slot)
{
	return (slot & ~HALF_OPEN) >> settings.flow_shift & (FLOW_WAYS - 1);
}

static __always_inline __u32 set_of_slot(__u32 slot)
{
	return slot & ((1U << settings.flow_shift) - 1);
}

static __always_inline __u64 mark_of(__u32 way)
{
	return 0x80ULL << way * 8;
}

/* Searches one flow set for a flow key. Returns the cache line and stores its flow slot in `slot`; returns
 * 0 if no way of the flow set has the key.
 */
static __always_inline struct flow *find_in_set(__u32 set, __u64 tags, const struct flow_lookup *flow_lookup, __u32 *slot)
{
	__u64 same = ways_with(tags, tag_of(flow_lookup->hash));

	for (int tries = 0; tries < FLOW_WAYS && same; tries++, same &= same - 1) {
		__u32 way = lowest_way(same) & (FLOW_WAYS - 1);
		struct flow *line;

		*slot = set | way << settings.flow_shift;
		line = bpf_map_lookup_elem(&flows, slot);
		if (line && has_key_of(line, flow_lookup)) {
			if (tags & mark_of(way))
				*slot |= HALF_OPEN;
			return line;
		}
	}
	return 0;
}

static __always_inline struct flow *find_line(struct flow_lookup *flow_lookup, __u32 *slot)
{
	__u32 set = first_set(flow_lookup->hash);
	__u64 *tags = tags_at(set), seen;
	struct flow *line;

	if (!tags)
		return 0;
	flow_lookup->tags = seen = READ_ONCE(*tags);
	line = find_in_set(set, seen, flow_lookup, slot);
	if (line || !(seen & SPILLED))
		return line;
	set = second_set(flow_lookup->hash);
	tags = tags_at(set);
	return tags ? find_in_set(set, READ_ONCE(*tags), flow_lookup, slot) : 0;
}

/* Searches the flow table for a flow key. Looks at way 0 of the first flow set before it reads the tag
 * word, because in a flow table with few flows most flows are in way 0.
 */
static __always_inline struct flow *find_likely(struct flow_lookup *flow_lookup)
{
	struct flow *line = flow_at(first_set(flow_lookup->hash));
	__u32 slot;

	return line && has_key_of(line, flow_lookup) ? line : find_line(flow_lookup, &slot);
}

/* Returns the flow slot of a flow key, or NO_SLOT if the flow table does not have the key. */
__noinline __u32 find_slot(const struct flow_key *key, __u64 hash)
{
	struct flow_lookup flow_lookup = { .hash = hash };
	__u32 slot;

	if (!key)
		return NO_SLOT;
	flow_lookup.addresses = addresses_of_key(key);
	flow_lookup.rest = rest_of_key(key);
	return find_line(&flow_lookup, &slot) ? slot : NO_SLOT;
}

#define USE_SHIFT 48

/* Makes this CPU the owner of a cache line, if the last word of its flow key still equals `rest`.
 * After that, searches do not find the flow. Returns false if another CPU has changed the word first.
 */
static __always_inline bool claim(struct flow *line, __u64 rest)
{
	__u64 claimed = (rest & ((1ULL << USE_SHIFT) - 1)) | (__u64)KEY_CLAIMED << USE_SHIFT;

	return __sync_val_compare_and_swap(rest_of(line), rest, claimed) == rest;
}

/* Removes the half-open mark of a flow. Only one of several CPUs that call this function at the same time
 * gets true.
 */
static __always_inline bool take_mark(__u32 slot)
{
	__u64 *tags = tags_at(set_of_slot(slot)), mark = mark_of(way_of_slot(slot));

	return tags && __sync_fetch_and_and(tags, ~mark) & mark;
}

/* Writes the flow key of a claimed cache line. Writes the word after the addresses last: a search does not
 * find the flow before this word is there.
 */
static __always_inline void publish(struct flow *line, const struct flow_key *key)
{
	*(volatile key_addresses_t *)&line->key = addresses_of_key(key);
	asm volatile("" ::: "memory");
	WRITE_ONCE(*rest_of(line), rest_of_key(key));
}

/* Claims a free way of a flow set, and stores `tag`, which includes the half-open mark, for this way in the
 * tag word. Returns the flow slot. Returns NO_SLOT if the flow set has no free way, or if other CPUs changed
 * the tag word during all FLOW_WAYS attempts.
 */
static __always_inline __u32 claim_free(__u32 set, __u8 tag)
{
	__u64 *tags = tags_at(set);

	if (!tags)
		return NO_SLOT;
	for (int tries = 0; tries < FLOW_WAYS; tries++) {
		__u64 seen = READ_ONCE(*tags), free = ways_with(seen, 0);
		__u32 way = lowest_way(free) & (FLOW_WAYS - 1);

		if (!free)
			return NO_SLOT;
		if (__sync_val_compare_and_swap(tags, seen, seen | (__u64)(way ? tag : tag & ~SPILLED) << way * 8) == seen)
			return set | way << settings.flow_shift;
	}
	return NO_SLOT;
}

/* Calls `claim_free`. Not inlined, because its callers have little of the BPF stack left. */
__noinline __u32 claim_freed(__u32 set, __u8 tag)
{
	return claim_free(set, tag);
}

/* Returns the number of ways in use, according to a tag word (the tags of eight ways). The number is
 * approximate, because other CPUs can change the tag word at any time.
 */
static __always_inline __u32 ways_in_use_by(__u64 tags)
{
	return FLOW_WAYS - ((ways_with(tags, 0) >> 7) * EACH_WAY >> 56);
}

/* Returns the number of ways without a half-open mark, according to a tag word (the tags of eight ways): in a
 * full flow set, the number of established flows.
 */
static __always_inline __u32 ways_without_mark(__u64 tags)
{
	return FLOW_WAYS - (((tags & HALF_OPEN_MARKS) >> 7) * EACH_WAY >> 56);
}

static __always_inline __u32 ways_in_use(__u32 set)
{
	__u64 *tags = tags_at(set);

	return tags ? ways_in_use_by(READ_ONCE(*tags)) : FLOW_WAYS;
}

/* Returns whether a new flow uses its second flow set (`other`): the first has at least CROWDED ways in
 * use, and the second has more free ways.
 */
static __always_inline bool is_to_spill(__u32 set, __u32 other)
{
	__u32 taken = ways_in_use(set);

	return taken >= CROWDED && ways_in_use(other) < taken;
}

static __always_inline void mark_spilled(__u32 set)
{
	__u64 *tags = tags_at(set);

	if (tags && !(READ_ONCE(*tags) & SPILLED))
		__sync_fetch_and_or(tags, SPILLED);
}

#endif

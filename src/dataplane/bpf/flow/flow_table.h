/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_TABLE_H
#define WEIR_FLOW_TABLE_H

/* The map `flows` consists of sets of eight ways, one cache line each, placed by a seeded hash. Ways with
 * the same number are adjacent, so a table with few flows uses few pages. For each set there is a word of
 * tags, one byte per way. A tag says whether the way is in use, holds a few bits of the hash of its flow,
 * and marks a half-open flow. All tag words fit into a near cache, and a lookup reads only lines that most
 * probably match. A flow is in any way of its first set or, if that was crowded, of its second set; the
 * first set then has the flag SPILLED for good.
 *
 * A CPU claims a way by a compare-and-swap of the tags, writes the line, and writes its key last. A reader
 * that finds its key in a line may use the line if the key is still there after it has read the other
 * fields. A flow is half open as long as its way has the mark. The CPU that removes the mark either
 * confirms the flow or evicts it, never both.
 *
 * A slot is the index of a line, and whether the flow was half open when its tags were read.
 */
#define HALF_OPEN (1U << 31)
#define NO_SLOT 0xffffffffU
#define CROWDED 6
#define EACH_WAY 0x0101010101010101ULL
#define EACH_TAG (EACH_WAY * 0x7f - SPILLED) /* 0: the way is free */
#define SPILLED (1ULL << 6)                  /* in way 0: some flows of this set are in their second set */
#define HALF_OPEN_MARKS (EACH_WAY * 0x80)          /* half open */

/* The lookup of a key, as two words. */
struct flow_lookup {
	__u64 addresses;
	__u64 rest;
	__u64 hash;
	__u64 tags; /* tags of its first set, as read */
};

static __always_inline const struct flow_key *lookup_key(const struct flow_lookup *flow_lookup)
{
	return (const struct flow_key *)flow_lookup;
}

static __always_inline __u64 hash_of(__u64 addresses, __u64 rest)
{
	__u64 mixed = (addresses ^ (rest + settings.flow_seed) * 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL;

	mixed ^= mixed >> 32;
	mixed *= 0xd6e8feb86659fd93ULL;
	return mixed ^ mixed >> 32;
}

static __always_inline __u64 hash_of_key(const struct flow_key *key)
{
	const __u64 *words = (const __u64 *)key;

	return hash_of(words[0], words[1]);
}

static __always_inline __u32 first_set(__u64 hash)
{
	return hash >> 40 & ((1U << settings.flow_shift) - 1);
}

static __always_inline __u32 second_set(__u64 hash)
{
	return hash >> 16 & ((1U << settings.flow_shift) - 1);
}

/* Only six bits of a tag count in the first way, since the seventh is SPILLED. */
static __always_inline __u8 tag_of(__u64 hash)
{
	return (hash & 0x3f) ? hash & 0x7f : 1;
}

static __always_inline bool same_key(const struct flow_key *a, const struct flow_key *b)
{
	const __u64 *left = (const __u64 *)a, *right = (const __u64 *)b;

	return left[0] == right[0] && left[1] == right[1];
}

static __always_inline bool has_key_of(const struct flow *line, const struct flow_lookup *flow_lookup)
{
	const __u64 *key = (const __u64 *)&line->key;

	return key[1] == flow_lookup->rest && key[0] == flow_lookup->addresses;
}

static __always_inline __u64 *rest_of(struct flow *line)
{
	return (__u64 *)&line->key.low_port;
}

/* Signed, since another CPU may have stored a later time than the caller read. */
static __always_inline bool is_expired(const struct flow *flow, __u32 now)
{
	return (__s32)(now - flow->last_seen) > (__s32)settings.timeouts[flow->state & (FLOW_STATES - 1)];
}

/* Whether the byte counter must be flushed before it wraps. */
static __always_inline bool is_flush_due(__u32 bytes, __u32 more)
{
	return (bytes ^ (bytes + more)) >> 30;
}

/* Returns the high bit of each byte whose way has this tag; tag 0 finds the free ways. */
static __always_inline __u64 ways_with(__u64 tags, __u8 tag)
{
	return ~(((tags ^ EACH_WAY * tag) & EACH_TAG) + EACH_WAY * 0x7f) & HALF_OPEN_MARKS;
}

/* Returns the number of the lowest byte whose highest bit is set in `bits`. */
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

/* Returns the line that has this key, and its slot; 0 if there is none. */
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

/* Returns the line that has this key. Looks at the most likely line first, before the tags. */
static __always_inline struct flow *find_likely(struct flow_lookup *flow_lookup)
{
	struct flow *line = flow_at(first_set(flow_lookup->hash));
	__u32 slot;

	return line && has_key_of(line, flow_lookup) ? line : find_line(flow_lookup, &slot);
}

/* Returns the slot that has this key; NO_SLOT if there is none. */
__noinline __u32 find_slot(const struct flow_key *key, __u64 hash)
{
	struct flow_lookup flow_lookup = { .hash = hash };
	__u32 slot;

	if (!key)
		return NO_SLOT;
	flow_lookup.addresses = ((const __u64 *)key)[0];
	flow_lookup.rest = ((const __u64 *)key)[1];
	return find_line(&flow_lookup, &slot) ? slot : NO_SLOT;
}

#define USE_SHIFT 48

/* Makes this CPU the owner of the line, if its key still has this second word. */
static __always_inline bool claim(struct flow *line, __u64 rest)
{
	__u64 claimed = (rest & ((1ULL << USE_SHIFT) - 1)) | (__u64)KEY_CLAIMED << USE_SHIFT;

	return __sync_val_compare_and_swap(rest_of(line), rest, claimed) == rest;
}

/* Removes the mark of a half-open flow. Returns true on the one CPU that removed it. */
static __always_inline bool take_mark(__u32 slot)
{
	__u64 *tags = tags_at(set_of_slot(slot)), mark = mark_of(way_of_slot(slot));

	return tags && __sync_fetch_and_and(tags, ~mark) & mark;
}

/* Gives a claimed line its key: other CPUs find the flow from now on. */
static __always_inline void publish(struct flow *line, const struct flow_key *key)
{
	const __u64 *words = (const __u64 *)key;

	WRITE_ONCE(*(__u64 *)&line->key, words[0]);
	asm volatile("" ::: "memory");
	WRITE_ONCE(*rest_of(line), words[1]);
}

/* Claims a free way of the set. Returns its slot; NO_SLOT if there is none. `tag` includes the half-open
 * mark.
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

/* A function call, for callers that lack stack rather than time. */
__noinline __u32 claim_freed(__u32 set, __u8 tag)
{
	return claim_free(set, tag);
}

/* Returns the approximate number of ways in use. */
static __always_inline __u32 ways_in_use_by(__u64 tags)
{
	return FLOW_WAYS - ((ways_with(tags, 0) >> 7) * EACH_WAY >> 56);
}

static __always_inline __u32 ways_in_use(__u32 set)
{
	__u64 *tags = tags_at(set);

	return tags ? ways_in_use_by(READ_ONCE(*tags)) : FLOW_WAYS;
}

/* Whether a new flow goes to its second set rather than to its first. */
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

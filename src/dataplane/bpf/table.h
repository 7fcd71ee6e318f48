/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

/* `flows` and `half_open` are sets of eight ways, a cache line each, placed by a seeded hash. Ways of one number stand
 * together, so that a table of few flows takes few pages. For each set a word of tags, a byte for each way, says which are
 * taken, and by whom more or less: all the words fit into a near cache, and lines are looked at that are most probably
 * the right ones. A flow is in any way of its set or, where that was crowded, of a second one: the first says so, for ever.
 *
 * Who wants to write a line claims its way by an exchange of the tags, and gives the line a key in the end. A line with the
 * key that somebody looks for is that flow's, as long as the key is still there after what mattered was read.
 *
 * Where a line stands is its slot: its index, and which table.
 */
#define IN_HALF_OPEN (1U << 31)
#define NO_SLOT 0xffffffffU
#define CROWDED 6
#define EACH_WAY 0x0101010101010101ULL
#define EACH_TAG (EACH_WAY * 0x7f)  /* 0: the way is free */
#define EACH_MARK (EACH_WAY * 0x80) /* what the set says of itself: */
#define MARK_SPILLED (1ULL << 7)    /* others of it stand in their second one, */
#define MARKS_OF_NEXT 0x80808000ULL /* and which way makes room next, in `half_open` */

/* Of a key, as two words. */
struct sought {
	__u64 addresses;
	__u64 rest;
	__u64 hash;
};

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

static __always_inline __u32 first_set(__u64 hash, __u32 shift)
{
	return hash >> 40 & ((1U << shift) - 1);
}

static __always_inline __u32 second_set(__u64 hash, __u32 shift)
{
	return hash >> 16 & ((1U << shift) - 1);
}

static __always_inline __u8 tag_of(__u64 hash)
{
	return (hash & 0x7f) ? hash & 0x7f : 1;
}

static __always_inline bool same_key(const struct flow_key *a, const struct flow_key *b)
{
	const __u64 *left = (const __u64 *)a, *right = (const __u64 *)b;

	return left[0] == right[0] && left[1] == right[1];
}

static __always_inline bool is_of(const struct flow *line, const struct sought *sought)
{
	const __u64 *key = (const __u64 *)&line->key;

	return key[1] == sought->rest && key[0] == sought->addresses;
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

/* Bytes that a flow carries are folded before they wrap. */
static __always_inline bool is_fold_due(__u32 bytes, __u32 more)
{
	return (bytes ^ (bytes + more)) >> 30;
}

/* The high bit of each byte whose way has this tag; 0 finds those that are free. */
static __always_inline __u64 ways_with(__u64 tags, __u8 tag)
{
	return ~(((tags ^ EACH_WAY * tag) & EACH_TAG) + EACH_TAG) & EACH_MARK;
}

/* Of bits that are each the highest of a byte: the number of the lowest byte. */
static __always_inline __u32 lowest_way(__u64 bits)
{
	return ((bits & -bits) >> 7) * 0x0001020304050607ULL >> 56;
}

/* The line that has this key, and its index; 0 where none has. */
static __always_inline struct flow *find_in_set(void *table, __u32 shift, __u32 set, __u64 tags, const struct sought *sought,
						__u32 *at)
{
	__u64 same = ways_with(tags, tag_of(sought->hash));

	for (int tries = 0; tries < FLOW_WAYS && same; tries++, same &= same - 1) {
		struct flow *line;

		*at = set | lowest_way(same) << shift;
		line = bpf_map_lookup_elem(table, at);
		if (line && is_of(line, sought))
			return line;
	}
	return 0;
}

static __always_inline struct flow *find_in(void *table, void *tags_of_table, __u32 shift, const struct sought *sought,
					    __u32 *at)
{
	__u32 set = first_set(sought->hash, shift);
	__u64 *tags = bpf_map_lookup_elem(tags_of_table, &set), seen;
	struct flow *line;

	if (!tags)
		return 0;
	seen = READ_ONCE(*tags);
	line = find_in_set(table, shift, set, seen, sought, at);
	if (line || !(seen & MARK_SPILLED))
		return line;
	set = second_set(sought->hash, shift);
	tags = bpf_map_lookup_elem(tags_of_table, &set);
	return tags ? find_in_set(table, shift, set, READ_ONCE(*tags), sought, at) : 0;
}

static __always_inline struct flow *find_confirmed(const struct sought *sought, __u32 *slot)
{
	return find_in(&flows, &flow_tags, settings.flow_shift, sought, slot);
}

/* Brings the line that a flow is in as a rule while its tags are on their way: nothing waits for a store. */
static __always_inline void expect_flow(__u64 hash)
{
	__u32 set = first_set(hash, settings.flow_shift);
	struct flow *first = bpf_map_lookup_elem(&flows, &set);

	if (first)
		WRITE_ONCE(first->expected, 0);
}

static __always_inline struct flow *find_half_open(const struct sought *sought, __u32 *slot)
{
	struct flow *line = find_in(&half_open, &half_open_tags, settings.half_open_shift, sought, slot);

	*slot |= IN_HALF_OPEN;
	return line;
}

/* The slot that has this key, in either table; NO_SLOT where none has. */
__noinline __u32 find_slot(const struct flow_key *key)
{
	struct sought sought;
	__u32 slot;

	if (!key)
		return NO_SLOT;
	sought.addresses = ((const __u64 *)key)[0];
	sought.rest = ((const __u64 *)key)[1];
	sought.hash = hash_of(sought.addresses, sought.rest);
	return find_confirmed(&sought, &slot) || find_half_open(&sought, &slot) ? slot : NO_SLOT;
}

/* The line of one table or of the other. A lookup whose map is only known while it runs is a call that the verifier cannot
 * put code in the place of: the barrier keeps clang from making one of two.
 */
#define LINE_AT(slot, of_half_open, of_flows)                         \
	({                                                            \
		__u32 at = (slot) & ~IN_HALF_OPEN;                    \
		void *line;                                           \
		if ((slot) & IN_HALF_OPEN) {                          \
			line = bpf_map_lookup_elem(of_half_open, &at); \
			asm volatile("" ::: "memory");                \
		} else {                                              \
			line = bpf_map_lookup_elem(of_flows, &at);    \
		}                                                     \
		line;                                                 \
	})

static __always_inline struct flow *flow_at(__u32 slot)
{
	return LINE_AT(slot, &half_open, &flows);
}

static __always_inline struct tally *tally_at(__u32 slot)
{
	return LINE_AT(slot, &half_open_tallies, &tallies);
}

#define USE_SHIFT 48

/* From now on this CPU alone may write the line, which was that of a key with this rest. */
static __always_inline bool claim(struct flow *line, __u64 rest)
{
	__u64 claimed = (rest & ((1ULL << USE_SHIFT) - 1)) | (__u64)KEY_CLAIMED << USE_SHIFT;

	return __sync_val_compare_and_swap(rest_of(line), rest, claimed) == rest;
}

static __always_inline void free_way(__u64 *tags, __u32 way)
{
	if (tags)
		__sync_fetch_and_and(tags, ~(0x7fULL << (way & (FLOW_WAYS - 1)) * 8));
}

/* Makes a claimed line nobody's, and then its way. */
static __always_inline void release(struct flow *line, __u32 slot)
{
	__u32 at = slot & ~IN_HALF_OPEN, shift = slot & IN_HALF_OPEN ? settings.half_open_shift : settings.flow_shift;
	__u32 set = at & ((1U << shift) - 1);

	WRITE_ONCE(*rest_of(line), 0);
	asm volatile("" ::: "memory");
	free_way(LINE_AT(set | (slot & IN_HALF_OPEN), &half_open_tags, &flow_tags), at >> shift);
}

/* Makes a claimed line that of a key: others find it from now on. */
static __always_inline void publish(struct flow *line, const struct flow_key *key)
{
	const __u64 *words = (const __u64 *)key;

	WRITE_ONCE(*(__u64 *)&line->key, words[0]);
	asm volatile("" ::: "memory");
	WRITE_ONCE(*rest_of(line), words[1]);
}

/* A free way of the set, claimed, as an index; NO_SLOT where there is none. */
static __always_inline __u32 claim_free(__u64 *tags, __u32 shift, __u32 set, __u8 tag)
{
	if (!tags)
		return NO_SLOT;
	for (int tries = 0; tries < FLOW_WAYS; tries++) {
		__u64 seen = READ_ONCE(*tags), free = ways_with(seen, 0);
		__u32 way = lowest_way(free) & (FLOW_WAYS - 1);

		if (!free)
			return NO_SLOT;
		if (__sync_val_compare_and_swap(tags, seen, seen | (__u64)tag << way * 8) == seen)
			return set | way << shift;
	}
	return NO_SLOT;
}

__noinline __u32 claim_free_flow(__u32 set, __u8 tag)
{
	return claim_free(bpf_map_lookup_elem(&flow_tags, &set), settings.flow_shift, set, tag);
}

__noinline __u32 claim_free_half_open(__u32 set, __u8 tag)
{
	__u32 at = claim_free(bpf_map_lookup_elem(&half_open_tags, &set), settings.half_open_shift, set, tag);

	return at == NO_SLOT ? at : at | IN_HALF_OPEN;
}

/* Ways of the set that are taken, more or less. */
static __always_inline __u32 crowd(void *tags_of_table, __u32 set)
{
	__u64 *tags = bpf_map_lookup_elem(tags_of_table, &set);

	return tags ? FLOW_WAYS - ((ways_with(READ_ONCE(*tags), 0) >> 7) * EACH_WAY >> 56) : FLOW_WAYS;
}

/* Whether a flow goes to its second set rather than to its first. */
static __always_inline bool is_to_spill(void *tags_of_table, __u32 set, __u32 other)
{
	__u32 taken = crowd(tags_of_table, set);

	return taken >= CROWDED && crowd(tags_of_table, other) < taken;
}

static __always_inline void mark_spilled(void *tags_of_table, __u32 set)
{
	__u64 *tags = bpf_map_lookup_elem(tags_of_table, &set);

	if (tags && !(READ_ONCE(*tags) & MARK_SPILLED))
		__sync_fetch_and_or(tags, MARK_SPILLED);
}

/* The way of a set that makes room next, one after the other. */
static __always_inline __u32 next_way(__u64 *tags)
{
	__u64 seen = READ_ONCE(*tags);
	__u32 way = (seen >> 15 & 1) | (seen >> 22 & 2) | (seen >> 29 & 4), after = way + 1;
	__u64 marks = (__u64)(after & 1) << 15 | (__u64)(after & 2) << 22 | (__u64)(after & 4) << 29;

	/* Where another CPU was faster, both take the same, and one of them takes another one afterwards. */
	__sync_val_compare_and_swap(tags, seen, (seen & ~MARKS_OF_NEXT) | marks);
	return way;
}

#endif

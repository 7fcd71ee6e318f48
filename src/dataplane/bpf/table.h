/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

/* `flows` and `half_open` are sets of eight ways, a cache line each, placed by a seeded hash. Ways of one number stand
 * together, so that a table of few flows takes few pages. A flow is in any way of its set or, where that was crowded, of a
 * second one: the first says so, for ever.
 *
 * Who wants to write a line claims it by an exchange, and gives it a key in the end. A line with the key that somebody
 * looks for is that flow's, as long as the key is still there after what mattered was read.
 *
 * Where a line stands is its slot: its index, and which table.
 */
#define IN_HALF_OPEN (1U << 31)
#define NO_SLOT 0xffffffffU
#define CROWDED 6
#define EACH_TAG 0x0101010101010101ULL
#define OTHER_WAYS (~0xffULL)

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
	return (hash & 0xff) ? hash : 1;
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

static __always_inline __u64 tags_of(const struct flow *first)
{
	return READ_ONCE(*(const __u64 *)first->tags);
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

/* The high bit of each byte that is not zero, but for the first. */
static __always_inline __u64 taken_ways(__u64 tags)
{
	return (((tags & EACH_TAG * 0x7f) + EACH_TAG * 0x7f) | tags) & EACH_TAG * 0x80 & OTHER_WAYS;
}

/* Of bits that are each the highest of a byte: the number of the lowest byte. */
static __always_inline __u32 lowest_way(__u64 bits)
{
	return ((bits & -bits) >> 7) * 0x0001020304050607ULL >> 56;
}

/* The line that has this key, and its index; 0 where none has. `first`: that of the set's first way. */
static __always_inline struct flow *find_in_set(void *table, __u32 shift, __u32 set, const struct sought *sought,
						__u32 *at, struct flow **first)
{
	struct flow *line;
	__u64 same;

	*at = set;
	*first = line = bpf_map_lookup_elem(table, at);
	if (!line || is_of(line, sought))
		return line;
	same = ~taken_ways(tags_of(line) ^ EACH_TAG * tag_of(sought->hash)) & EACH_TAG * 0x80 & OTHER_WAYS;
	for (int tries = 0; tries < FLOW_WAYS - 1 && same; tries++, same &= same - 1) {
		*at = set | lowest_way(same) << shift;
		line = bpf_map_lookup_elem(table, at);
		if (line && is_of(line, sought))
			return line;
	}
	return 0;
}

static __always_inline struct flow *find_in(void *table, __u32 shift, const struct sought *sought, __u32 *slot)
{
	struct flow *first, *line;

	line = find_in_set(table, shift, first_set(sought->hash, shift), sought, slot, &first);
	if (line || !first || !(first->tags[0] & TAGS_SPILLED))
		return line;
	return find_in_set(table, shift, second_set(sought->hash, shift), sought, slot, &first);
}

static __always_inline struct flow *find_confirmed(const struct sought *sought, __u32 *slot)
{
	return find_in(&flows, settings.flow_shift, sought, slot);
}

static __always_inline struct flow *find_half_open(const struct sought *sought, __u32 *slot)
{
	struct flow *line = find_in(&half_open, settings.half_open_shift, sought, slot);

	*slot |= IN_HALF_OPEN;
	return line;
}

/* Brings the line that a flow without a reply would be found by, while others are still on their way. */
static __always_inline void expect_half_open(__u64 hash)
{
	__u32 set = first_set(hash, settings.half_open_shift);
	struct flow *first = bpf_map_lookup_elem(&half_open, &set);

	if (first)
		READ_ONCE(*rest_of(first));
}

/* In either table; 0 where it is in none. */
static __noinline struct flow *find_slot(const struct flow_key *key, __u32 *slot)
{
	struct sought sought;
	struct flow *flow;

	if (!key || !slot)
		return 0;
	sought.addresses = ((const __u64 *)key)[0];
	sought.rest = ((const __u64 *)key)[1];
	sought.hash = hash_of(sought.addresses, sought.rest);
	expect_half_open(sought.hash);
	flow = find_confirmed(&sought, slot);
	return flow ? flow : find_half_open(&sought, slot);
}

static __always_inline struct flow *flow_at(__u32 slot)
{
	__u32 at = slot & ~IN_HALF_OPEN;

	return slot & IN_HALF_OPEN ? bpf_map_lookup_elem(&half_open, &at) : bpf_map_lookup_elem(&flows, &at);
}

static __always_inline struct tally *tally_at(__u32 slot)
{
	__u32 at = slot & ~IN_HALF_OPEN;

	return slot & IN_HALF_OPEN ? bpf_map_lookup_elem(&half_open_tallies, &at) : bpf_map_lookup_elem(&tallies, &at);
}

#define USE_SHIFT 48

/* From now on this CPU alone may write the line, which was that of a key with this rest, or nobody's. */
static __always_inline bool claim(struct flow *line, __u64 rest)
{
	__u64 claimed = (rest & ((1ULL << USE_SHIFT) - 1)) | (__u64)KEY_CLAIMED << USE_SHIFT;

	return __sync_val_compare_and_swap(rest_of(line), rest, claimed) == rest;
}

/* Makes a claimed line nobody's, and then its way. */
static __always_inline void release(struct flow *line, __u32 slot)
{
	bool half = slot & IN_HALF_OPEN;
	__u32 shift = half ? settings.half_open_shift : settings.flow_shift;
	__u32 way = (slot & ~IN_HALF_OPEN) >> shift, set = slot & ((1U << shift) - 1);
	struct flow *first;

	WRITE_ONCE(*rest_of(line), 0);
	if (!way)
		return;
	first = half ? bpf_map_lookup_elem(&half_open, &set) : bpf_map_lookup_elem(&flows, &set);
	asm volatile("" ::: "memory");
	if (first)
		WRITE_ONCE(first->tags[way & (FLOW_WAYS - 1)], 0);
}

/* Makes a claimed line that of a key: others find it from now on. */
static __always_inline void publish(struct flow *line, const struct flow_key *key)
{
	const __u64 *words = (const __u64 *)key;

	WRITE_ONCE(*(__u64 *)&line->key, words[0]);
	asm volatile("" ::: "memory");
	WRITE_ONCE(*rest_of(line), words[1]);
}

/* A free way of the set, claimed; NO_SLOT where there is none. All but the first are claimed by their tags, so that nobody
 * waits for the line itself.
 */
static __always_inline __u32 claim_free(void *table, __u32 shift, __u32 set, __u8 tag)
{
	struct flow *first = bpf_map_lookup_elem(table, &set);

	if (!first)
		return NO_SLOT;
	if (!READ_ONCE(*rest_of(first)) && claim(first, 0))
		return set;
	for (int tries = 0; tries < FLOW_WAYS; tries++) {
		__u64 tags = tags_of(first), free = ~taken_ways(tags) & EACH_TAG * 0x80 & OTHER_WAYS;
		__u32 way = lowest_way(free) & (FLOW_WAYS - 1);

		if (!free)
			return NO_SLOT;
		if (__sync_val_compare_and_swap((__u64 *)first->tags, tags, tags | (__u64)tag << way * 8) == tags)
			return set | way << shift;
	}
	return NO_SLOT;
}

static __noinline __u32 claim_free_flow(__u32 set, __u8 tag)
{
	return claim_free(&flows, settings.flow_shift, set, tag);
}

static __noinline __u32 claim_free_half_open(__u32 set, __u8 tag)
{
	__u32 at = claim_free(&half_open, settings.half_open_shift, set, tag);

	return at == NO_SLOT ? at : at | IN_HALF_OPEN;
}

/* Ways of the set that are taken, more or less. */
static __always_inline __u32 crowd(void *table, __u32 set)
{
	struct flow *first = bpf_map_lookup_elem(table, &set);

	return first ? 1 + ((taken_ways(tags_of(first)) >> 7) * EACH_TAG >> 56) : FLOW_WAYS;
}

/* Whether a flow goes to its second set rather than to its first. */
static __always_inline bool is_to_spill(void *table, __u32 set, __u32 other)
{
	__u32 taken = crowd(table, set);

	return taken >= CROWDED && crowd(table, other) < taken;
}

static __always_inline void mark_spilled(void *table, __u32 set)
{
	struct flow *first = bpf_map_lookup_elem(table, &set);

	if (first && !(first->tags[0] & TAGS_SPILLED))
		WRITE_ONCE(first->tags[0], first->tags[0] | TAGS_SPILLED);
}

#endif

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Compares lookups with IPv4 keys and lookups with IPv6 keys. The search with 32-bit keys is that of the
 * datapath (image_search.h). The other searches and the two flow tables are models: they have the layout of
 * the datapath and the keys of IPv6, and leave out what costs the same for both families.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define SLOT_LINES (1 << 17)
#define LINE_WORDS 16

struct line {
	__u32 words[LINE_WORDS];
};

static const struct {
	__u32 slot_lines;
} settings = { .slot_lines = SLOT_LINES };

/* Slot 0 has the trees with 32-bit keys, slot 1 the trees with wider keys. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, SLOT_LINES * sizeof(struct line));
} program SEC(".maps");

#include "../../src/dataplane/bpf/classify/image_search.h"

enum kind {
	KEYS_32,
	SEARCH_32,
	KEYS_128,
	SEARCH_64,
	SEARCH_64_AND_REST,
	SEARCH_128,
	FILL_32,
	KEYS_OF_FLOW_32,
	FIND_32,
	FILL_128,
	KEYS_OF_FLOW_128,
	FIND_128,
};

struct request {
	__u32 kind;
	__u32 count;
	__u32 seed;
	__u32 source_tree; /* cache line << 3 | depth */
	__u32 destination_tree;
	__u32 flows;       /* number of flows, a power of two */
	__u32 set_mask;    /* number of flow sets - 1 */
	__u32 missed;      /* result: flows that were not found, or had no room */
	__u64 elapsed_ns;
	__u64 checksum;
};

struct state {
	struct request request;
	__u32 random;
	__u32 missed;
	__u64 checksum;
};

static __always_inline __u32 next_random(struct state *state)
{
	__u32 x = state->random;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	state->random = x;
	return x;
}

struct address {
	__u64 upper;
	__u64 lower;
};

#define PREFIX 0x20010db800000000ULL

static __always_inline struct address random_address(struct state *state)
{
	struct address address = { .upper = PREFIX | next_random(state) };

	address.lower = (__u64)next_random(state) << 32 | (__u32)address.upper;
	return address;
}

/* Returns 1 if a < b, else 0, without a branch: BPF has no instruction that stores a comparison. */
static __always_inline __u64 is_below(__u64 a, __u64 b)
{
	__u64 borrow = ((~a & b) | ((~a | b) & (a - b))) >> 63;

	asm volatile("" : "+r"(borrow));
	return borrow;
}

static __always_inline __u64 is_not_above_64(__u64 key, __u64 x)
{
	return is_below(x, key) ^ 1;
}

static __always_inline __u64 is_not_above_128(const __u64 *key, struct address x)
{
	__u64 differs = x.upper ^ key[0];
	__u64 is_equal = ((differs | -differs) >> 63) ^ 1;

	return (is_below(x.upper, key[0]) | (is_equal & is_below(x.lower, key[1]))) ^ 1;
}

#define DEPTH_64 7
/* A tree with 64-bit keys. An inner line has the reference to its children (line << 4 | last child) and seven
 * keys, so eight children. A bottom line has five keys and six values. The first child and the first value
 * need no key.
 */
static __always_inline __u32 search_64(struct image image, __u32 tree, __u64 x)
{
	__u32 index = tree >> 3, depth = tree & 7, last;
	struct line *line;
	__u64 place, *words;

	for (int level = 0; level < DEPTH_64 && depth > 0; level++, depth--) {
		line = line_at(image, index);
		if (!line)
			return 0;
		words = (__u64 *)line->words;
		place = 0;
#pragma unroll
		for (int i = 1; i < 8; i++)
			place += is_not_above_64(words[i], x);
		last = words[0] & 15;
		if (place > last)
			place = last;
		index = (words[0] >> 4) + place;
	}
	line = line_at(image, index);
	if (!line)
		return 0;
	words = (__u64 *)line->words;
	place = 0;
#pragma unroll
	for (int i = 0; i < 5; i++)
		place += is_not_above_64(words[i], x);
	return line->words[10 + place];
}

#define DEPTH_128 15
/* A tree with 128-bit keys. An inner line has the reference to its children and three keys, so four children.
 * A bottom line has three keys and four values. The depth takes four bits of `tree`.
 */
static __always_inline __u32 search_128(struct image image, __u32 tree, struct address x)
{
	__u32 index = tree >> 4, depth = tree & 15, last;
	struct line *line;
	__u64 place, *words;

	for (int level = 0; level < DEPTH_128 && depth > 0; level++, depth--) {
		line = line_at(image, index);
		if (!line)
			return 0;
		words = (__u64 *)line->words;
		place = is_not_above_128(words + 2, x) + is_not_above_128(words + 4, x) + is_not_above_128(words + 6, x);
		last = words[0] & 15;
		if (place > last)
			place = last;
		index = (words[0] >> 4) + place;
	}
	line = line_at(image, index);
	if (!line)
		return 0;
	words = (__u64 *)line->words;
	place = is_not_above_128(words, x) + is_not_above_128(words + 2, x) + is_not_above_128(words + 4, x);
	return line->words[12 + place];
}

__noinline __u32 find_64(__u32 tree, __u64 x)
{
	return search_64(image_of(1), tree, x);
}

__noinline __u32 find_128(__u32 tree, __u64 upper, __u64 lower)
{
	struct address x = { .upper = upper, .lower = lower };

	return search_128(image_of(1), tree, x);
}

/* The value of the upper 64 bits is the tree of the lower 64 bits. */
static __always_inline __u32 find_64_and_rest(__u32 tree, struct address x)
{
	return find_64(find_64(tree, x.upper), x.lower);
}

static long search_one(__u32 number, struct state *state)
{
	struct request *request = &state->request;
	struct address source, destination;

	if (request->kind <= SEARCH_32) {
		__u32 from = next_random(state), to = next_random(state);

		state->checksum += request->kind == KEYS_32 ? from ^ to
							    : search(0, request->source_tree, from) +
								      search(0, request->destination_tree, to);
		return 0;
	}
	source = random_address(state);
	destination = random_address(state);
	switch (request->kind) {
	case SEARCH_64:
		state->checksum += find_64(request->source_tree, source.upper) +
				   find_64(request->destination_tree, destination.upper);
		break;
	case SEARCH_64_AND_REST:
		state->checksum += find_64_and_rest(request->source_tree, source) +
				   find_64_and_rest(request->destination_tree, destination);
		break;
	case SEARCH_128:
		state->checksum += find_128(request->source_tree, source.upper, source.lower) +
				   find_128(request->destination_tree, destination.upper, destination.lower);
		break;
	default:
		state->checksum += source.upper ^ source.lower ^ destination.upper ^ destination.lower;
	}
	return 0;
}

/* The flow of IPv4 is one cache line, as in the datapath: a key of 16 bytes, and the fields that each packet
 * uses. The flow of IPv6 has a key of 40 bytes, so the fields of each packet need a second cache line.
 */
struct flow_use {
	__u64 judgement;
	__u32 last_seen;
	__u32 state;
	__u32 ifindex[2];
	__u32 packets[2];
	__u32 bytes[2];
	__u32 hops[2];
};

struct flow_32 {
	__u64 key[2];
	struct flow_use use;
};

struct flow_128 {
	__u64 key[5];
	struct flow_use use;
	__u64 reserved[5];
};

_Static_assert(sizeof(struct flow_32) == 64, "one cache line");
_Static_assert(sizeof(struct flow_128) == 128, "two cache lines");

#define SETS (1 << 15)
#define ARRAY(name, type_of_value, entries)       \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(max_entries, entries);     \
		__type(key, __u32);               \
		__type(value, type_of_value);     \
	} name SEC(".maps")

ARRAY(flows, struct flow_32, 8 * SETS);
ARRAY(tallies, struct flow_128, 8 * SETS);

/* The tag words of the flow sets of IPv4, and after them those of IPv6. */
ARRAY(flow_tags, __u64, 2 * SETS);

#define EACH_WAY 0x0101010101010101ULL
#define HIGH_BITS (EACH_WAY * 0x80)
#define NO_SLOT 0xffffffffU

static __always_inline __u64 ways_with(__u64 tags, __u8 tag)
{
	return ~(((tags ^ EACH_WAY * tag) & EACH_WAY * 0x7f) + EACH_WAY * 0x7f) & HIGH_BITS;
}

static __always_inline __u32 lowest_way(__u64 bits)
{
	return ((bits & -bits) >> 7) * 0x0001020304050607ULL >> 56;
}

static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0xd6e8feb86659fd93ULL;
	return hash ^ hash >> 32;
}

/* The hash function of the datapath, for a key of two words. */
static __always_inline __u64 hash_32(const __u64 *key)
{
	return mixed((key[0] ^ key[1] * 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL, 0);
}

static __always_inline __u64 hash_128(const __u64 *key)
{
	__u64 hash = key[4] * 0x9e3779b97f4a7c15ULL;

#pragma unroll
	for (int i = 0; i < 4; i++)
		hash = mixed(hash, key[i]);
	return hash;
}

/* Writes the key of flow `number` to `key`. */
static __always_inline void make_key(__u64 *key, __u32 number, bool is_wide)
{
	__u64 rest = (__u64)(number * 2654435761U) << 32 | 17 << 16 | 1;

	if (!is_wide) {
		key[0] = (__u64)(0x0a000000 + number) << 32 | (0x14000000 + number * 7);
		key[1] = rest;
		return;
	}
	key[0] = PREFIX | number >> 8;
	key[1] = number * 0x9e3779b97f4a7c15ULL;
	key[2] = PREFIX | 0xff000000 | number >> 4;
	key[3] = number * 0xd6e8feb86659fd93ULL;
	key[4] = rest;
}

static __always_inline bool has_key(const __u64 *kept, const __u64 *key, __u32 words)
{
	__u64 differs = 0;

#pragma unroll
	for (__u32 i = 0; i < words; i++)
		differs |= kept[i] ^ key[i];
	return differs == 0;
}

static __always_inline __u64 *flow_key_at(__u32 slot, bool is_wide)
{
	struct flow_128 *wide;
	struct flow_32 *narrow;

	if (is_wide) {
		wide = bpf_map_lookup_elem(&tallies, &slot);
		return wide ? wide->key : 0;
	}
	narrow = bpf_map_lookup_elem(&flows, &slot);
	return narrow ? narrow->key : 0;
}

static __always_inline struct flow_use *flow_use_at(__u32 slot, bool is_wide)
{
	struct flow_128 *wide;
	struct flow_32 *narrow;

	if (is_wide) {
		wide = bpf_map_lookup_elem(&tallies, &slot);
		return wide ? &wide->use : 0;
	}
	narrow = bpf_map_lookup_elem(&flows, &slot);
	return narrow ? &narrow->use : 0;
}

/* Returns the flow slot of a key in one flow set, or NO_SLOT. */
static __always_inline __u32 find_in_set(__u32 set, __u8 tag, const __u64 *key, bool is_wide)
{
	__u32 tags_at = is_wide ? SETS + set : set, slot;
	__u64 *tags = bpf_map_lookup_elem(&flow_tags, &tags_at), *kept, ways;

	if (!tags)
		return NO_SLOT;
	ways = ways_with(*tags, tag);
	for (int i = 0; i < 8 && ways; i++) {
		slot = lowest_way(ways) * SETS + set;
		kept = flow_key_at(slot, is_wide);
		if (kept && has_key(kept, key, is_wide ? 5 : 2))
			return slot;
		ways &= ways - 1;
	}
	return NO_SLOT;
}

static __always_inline bool put_in_set(__u32 set, __u8 tag, const __u64 *key, bool is_wide)
{
	__u32 tags_at = is_wide ? SETS + set : set, way;
	__u64 *tags = bpf_map_lookup_elem(&flow_tags, &tags_at), *kept, ways;

	if (!tags)
		return false;
	ways = ways_with(*tags, 0);
	if (!ways)
		return false;
	way = lowest_way(ways);
	kept = flow_key_at(way * SETS + set, is_wide);
	if (!kept)
		return false;
#pragma unroll
	for (int i = 0; i < 5; i++)
		if (is_wide || i < 2)
			kept[i] = key[i];
	*tags |= (__u64)tag << 8 * way;
	return true;
}

static __always_inline long flow_one(__u32 number, struct state *state, bool is_wide)
{
	struct request *request = &state->request;
	__u32 kind = is_wide ? request->kind - (FILL_128 - FILL_32) : request->kind, first, second, slot;
	__u64 key[5] = {}, hash;
	struct flow_use *use;
	__u8 tag;

	make_key(key, kind == FILL_32 ? number : next_random(state) & (request->flows - 1), is_wide);
	hash = is_wide ? hash_128(key) : hash_32(key);
	if (kind == KEYS_OF_FLOW_32) {
		state->checksum += hash;
		return 0;
	}
	first = hash >> 40 & request->set_mask & (SETS - 1);
	second = hash >> 16 & request->set_mask & (SETS - 1);
	tag = (hash & 0x7f) ? hash & 0x7f : 1;
	if (kind == FILL_32) {
		if (!put_in_set(first, tag, key, is_wide) && !put_in_set(second, tag, key, is_wide))
			state->missed++;
		return 0;
	}
	slot = find_in_set(first, tag, key, is_wide);
	if (slot == NO_SLOT)
		slot = find_in_set(second, tag, key, is_wide);
	use = flow_use_at(slot, is_wide);
	if (!use) {
		state->missed++;
		return 0;
	}
	use->last_seen = number;
	use->packets[0]++;
	use->bytes[0] += 60;
	state->checksum += use->judgement + use->hops[0] + use->ifindex[0];
	return 0;
}

static long flow_one_32(__u32 number, struct state *state)
{
	return flow_one(number, state, false);
}

static long flow_one_128(__u32 number, struct state *state)
{
	return flow_one(number, state, true);
}

SEC("syscall")
int weir_bench(struct request *request)
{
	struct state state = { .request = *request, .random = request->seed | 1 };
	__u64 start = bpf_ktime_get_ns();

	if (request->kind >= FILL_128)
		bpf_loop(request->count, flow_one_128, &state, 0);
	else if (request->kind >= FILL_32)
		bpf_loop(request->count, flow_one_32, &state, 0);
	else
		bpf_loop(request->count, search_one, &state, 0);
	request->elapsed_ns = bpf_ktime_get_ns() - start;
	request->checksum = state.checksum;
	request->missed = state.missed;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

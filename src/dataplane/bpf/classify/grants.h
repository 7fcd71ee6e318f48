/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Learned addresses (D12). User space alone writes them, through the memory of the maps; the kernel only reads.
 *
 * A place in the table goes to another address, a set line to another address and a pattern's number to another pattern
 * only after an RCU grace period, so that who reads an address and then what is granted to it never sees what belongs to
 * another. What is granted is read and written as one word.
 */
#ifndef WEIR_GRANTS_H
#define WEIR_GRANTS_H

#define GRANT_PLACES 5
#define GRANT_PROBES 8
#define SET_PLACES 7
#define MAX_SET_LINES 32
#define EXPIRY_SHIFT 27

/* In the lower half of a grant: what follows is the line of a set, not a pattern. */
#define GRANT_SET 0x80000000U
/* In what a name brings to a segment: a map of destinations, not a leaf. */
#define DESTINATION_MAP 0x80000000U
/* In the slot of a lookup: expired grants count too, for flows that exist. */
#define EXPIRED_TOO 0x80000000U
#define WITHOUT_GRANTS 0x40000000U /* none counts, for proofs */
#define LOOKUP_FLAGS (EXPIRED_TOO | WITHOUT_GRANTS)

/* Line 0. An address's home is `((mixed * multiplier + addend) >> 32) * homes >> 32`, from line 1 on. Mixed, since addresses
 * in a row, times a factor, may fall on few lines.
 */
struct grant_header {
	__u64 multiplier;
	__u64 addend;
	__u32 homes;
	__u32 reserved[11]; /* the first: earlier builds stored the owner of the table */
};

/* A grant is `expiry << 32 | pattern`, or with GRANT_SET `latest expiry << 32 | line of the set`; 0 is none. The expiry is
 * a time of the monotonic clock in units of 2^27 ns, rounded down. Address 0 is nobody's.
 */
struct grant_line {
	__u32 spilled; /* addresses whose way here goes on: they stand in lines behind this one */
	__u32 addresses[GRANT_PLACES];
	__u64 grants[GRANT_PLACES];
};

/* More than one pattern is granted to an address. Sets stand behind the table. */
struct grant_set {
	__u64 grants[SET_PLACES];
	__u32 next; /* line that goes on, or 0 */
	__u32 reserved;
};

union grants_entry {
	struct grant_header header;
	struct grant_line line;
	struct grant_set set;
};

/* A pattern that is in use: its place here is its number, which it keeps for life. */
struct pattern {
	__u32 names[2]; /* for each slot, its name in the program + 1; 0: it is not in that program */
	__u8 digest[24]; /* SHA-256 of its text, cut; zeros: the place rests or is free */
};

_Static_assert(sizeof(struct grant_header) == 64, "a line is a cache line");
_Static_assert(sizeof(struct grant_line) == 64, "a line is a cache line");
_Static_assert(sizeof(struct grant_set) == 64, "a line is a cache line");
_Static_assert(sizeof(struct pattern) == 32, "a pattern does not straddle lines");

/* Both are sized by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, union grants_entry);
} grants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pattern);
} patterns SEC(".maps");

static __always_inline void *grants_at(__u32 index)
{
	return bpf_map_lookup_elem(&grants, &index);
}

static __always_inline __u64 mix(__u32 address)
{
	address ^= address >> 16;
	address *= 0x85ebca6b;
	address ^= address >> 13;
	address *= 0xc2b2ae35;
	return address ^ address >> 16;
}

static __always_inline __u32 home_of(__u32 address)
{
	struct grant_header *header = grants_at(0);
	__u64 hash;

	if (!header)
		return 0;
	hash = (mix(address) * header->multiplier + header->addend) >> 32;
	return 1 + (hash * header->homes >> 32);
}

static __always_inline void touch_grants(__u32 address)
{
	struct grant_line *line = grants_at(home_of(address));

	if (line)
		(void)*(volatile __u32 *)&line->spilled;
}

/* What is granted to an address; 0 where nothing is. */
__noinline __u64 find_grant(__u32 address)
{
	__u32 index = home_of(address);

	if (!address)
		return 0;
	for (int probe = 0; probe < GRANT_PROBES; probe++) {
		struct grant_line *line = grants_at(index + probe);

		if (!line)
			return 0;
#pragma unroll
		for (int i = 0; i < GRANT_PLACES; i++) {
			if (line->addresses[i] == address)
				return *(volatile __u64 *)&line->grants[i];
		}
		if (!line->spilled)
			return 0;
	}
	return 0;
}

/* The word that one grant brings to the segment whose names are asked for. `where` is slot << 32 | tree of names, `keys`
 * source port << 32 | leaf key, `target` now << 32 | destination. Packed, and without calls of its own: the verifier allows
 * 512 bytes of stack, of which Linux 6.1 takes 32 for the least of calls, and this is the deepest.
 */
__noinline __u32 grant_word(__u64 where, __u64 keys, __u64 target, __u64 grant)
{
	__u32 number = grant, name, found;
	struct pattern *pattern;

	if (grant >> 32 <= target >> 32)
		return NO_MATCH;
	pattern = bpf_map_lookup_elem(&patterns, &number);
	if (!pattern)
		return NO_MATCH;
	name = where >> 32 ? pattern->names[1] : pattern->names[0];
	if (!name)
		return NO_MATCH;
	found = search_tree(image_of(where >> 32), where, name, NONE);
	if (found != NONE && found & DESTINATION_MAP)
		found = search_tree(image_of(where >> 32), found & ~DESTINATION_MAP, target, NONE);
	if (found == NONE)
		return NO_MATCH;
	found = search_tree(image_of(where >> 32), found, keys, NONE);
	if (found & SLICE)
		found = search_tree(image_of(where >> 32), found & ~SLICE, keys >> 32, NONE);
	return found;
}

/* The lowest word that the grants of a destination bring to a segment of a list, where that could be less than `word`.
 * `place` is line of the list << 3 | segment: the line behind it has, for each segment, its names and the leaf of the best
 * that any of them could bring. `keys` is source port << 32 | leaf key.
 */
__noinline __u32 named_word(__u32 slot_and_flags, __u32 place, __u32 destination, __u64 keys, __u32 word)
{
	__u32 slot = slot_and_flags & ~LOOKUP_FLAGS;
	struct image image = image_of(slot);
	struct line *line = line_at(image, (place >> 3) + 1);
	__u64 where = (__u64)slot << 32, target = destination, grant;
	__u32 index;

	if (!line)
		return 0;
	if (search_leaf(image, line->words[2 * (place & 7) + 1], keys, keys >> 32) >= word)
		return word;
	where |= line->words[2 * (place & 7)];
	grant = find_grant(destination);
	if (!grant)
		return word;
	if (!(slot_and_flags & EXPIRED_TOO))
		target |= bpf_ktime_get_ns() >> EXPIRY_SHIFT << 32;
	index = grant;
	if (!(index & GRANT_SET)) {
		__u32 other = grant_word(where, keys, target, grant);

		return other < word ? other : word;
	}
	if (grant >> 32 <= target >> 32)
		return word;
	index &= ~GRANT_SET;
	for (int count = 0; count < MAX_SET_LINES && index; count++) {
		struct grant_set *set = grants_at(index);

		if (!set)
			break;
		for (int i = 0; i < SET_PLACES; i++) {
			__u64 one = *(volatile __u64 *)&set->grants[i];
			__u32 other = one ? grant_word(where, keys, target, one) : NO_MATCH;

			if (other < word)
				word = other;
		}
		index = set->next;
	}
	return word;
}

#endif

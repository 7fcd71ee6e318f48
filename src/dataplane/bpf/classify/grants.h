/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Learned addresses (D12). User space alone writes them, through the mapped memory of the maps; the kernel
 * only reads.
 *
 * A place in the table, a set line and the number of a pattern are reused only after an RCU grace period.
 * So a program that reads an address and then its grants never sees the grants of another address. Each
 * grant is read and written as one word.
 */
#ifndef WEIR_GRANTS_H
#define WEIR_GRANTS_H

#define GRANT_PLACES 5
#define GRANT_PROBES 8
#define SET_PLACES 7
#define MAX_SET_LINES 32
#define EXPIRY_SHIFT 27

/* In the lower half of a grant: the rest is the line of a set, not a pattern. */
#define GRANT_SET 0x80000000U
/* In the value of a name in the tree of a rule block: a map of destinations, not a leaf. */
#define DESTINATION_MAP 0x80000000U
/* In the slot of a lookup: expired grants count too, for flows that exist. */
#define EXPIRED_TOO 0x80000000U
#define WITHOUT_GRANTS 0x40000000U /* grants are ignored, for proofs */
#define LOOKUP_FLAGS (EXPIRED_TOO | WITHOUT_GRANTS)

/* Line 0. The home line of an address is `((mixed * multiplier + addend) >> 32) * homes >> 32`, counted
 * from line 1. The address is mixed first: consecutive addresses, times a factor, may fall on few lines.
 */
struct grant_header {
	__u64 multiplier;
	__u64 addend;
	__u32 homes;
	__u32 reserved[11]; /* the first: earlier builds stored the owner of the table */
};

/* A grant is `expiry << 32 | pattern`, or with GRANT_SET `latest expiry << 32 | line of the set`; 0 is
 * none. The expiry is a time of the monotonic clock in units of 2^27 ns, rounded down. Address 0 marks a
 * free place.
 */
struct grant_line {
	__u32 spilled; /* number of addresses whose probe passes this line: they are in later lines */
	__u32 addresses[GRANT_PLACES];
	__u64 grants[GRANT_PLACES];
};

/* The grants of an address with more than one pattern. Sets follow the table. */
struct grant_set {
	__u64 grants[SET_PLACES];
	__u32 next; /* line where the set continues, or 0 */
	__u32 reserved;
};

union grants_entry {
	struct grant_header header;
	struct grant_line line;
	struct grant_set set;
};

/* A pattern in use: its index here is its number, which it keeps for life. */
struct pattern {
	__u32 names[2]; /* for each slot, its number in the program + 1; 0: not in that program */
	__u8 digest[24]; /* SHA-256 of its text, truncated; zeros: the entry is free, or not free yet */
};

_Static_assert(sizeof(struct grant_header) == 64, "a line is a cache line");
_Static_assert(sizeof(struct grant_line) == 64, "a line is a cache line");
_Static_assert(sizeof(struct grant_set) == 64, "a line is a cache line");
_Static_assert(sizeof(struct pattern) == 32, "a pattern does not straddle lines");

/* The loader sets the size of both maps. */
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

static __always_inline void prefetch_grants(__u32 address)
{
	struct grant_line *line = grants_at(home_of(address));

	if (line)
		(void)*(volatile __u32 *)&line->spilled;
}

/* Returns the grant of an address; 0 if it has none. */
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

/* Returns the verdict word that one grant gives in a rule block. `where` is slot << 32 | tree of names,
 * `keys` source port << 32 | leaf key, `target` now << 32 | destination. The arguments are packed, and this
 * function calls no other, since it is the deepest: the verifier allows 512 bytes of stack, and Linux 6.1
 * counts at least 32 for each call.
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

/* Returns the lowest verdict word that the grants of a destination give in a rule block of a list, if it is
 * below `word`. `place` is line of the list << 3 | segment. The line behind the list has, for each block,
 * its tree of names and the leaf of the best verdict word that any name could give. `keys` is source port
 * << 32 | leaf key.
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

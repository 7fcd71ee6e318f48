/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Grants: addresses that the DNS proxy learned for hostname patterns (D12). Only user space writes the maps
 * `grants` and `patterns`, through mapped memory. The BPF programs only read these maps.
 *
 * User space waits for an RCU grace period before it reuses the entry of an address, a cache line of a set of
 * grants, or a pattern number. So a BPF program that finds an address never reads the grants of another
 * address. Each grant is 64 bits wide; one access reads or writes a whole grant.
 */
#ifndef WEIR_GRANTS_H
#define WEIR_GRANTS_H

#define SET_PLACES 7
#define MAX_SET_LINES 32
#define EXPIRY_SHIFT 27

/* Bit 31 of a grant (an address that was learned for a hostname pattern). If the bit is set, bits 0 to 30 are
 * the index of the first cache line of a set of grants. Otherwise bits 0 to 30 are the number of the pattern.
 */
#define GRANT_SET 0x80000000U
/* Bit 31 of a value in the tree of hostnames of a rule block (a range of rules). If the bit is set, the value
 * refers to a map of destinations. Otherwise the value refers to a port map.
 */
#define DESTINATION_MAP 0x80000000U
/* Flag in the `slot` argument of a search: the search accepts expired grants (addresses learned for hostname
 * patterns) too. The datapath sets this flag when it classifies an existing flow again.
 */
#define EXPIRED_TOO 0x80000000U
/* Flag in the `slot` argument of a search: the search ignores all grants (learned addresses), as in a proof
 */
#define WITHOUT_GRANTS 0x40000000U
#define LOOKUP_FLAGS (EXPIRED_TOO | WITHOUT_GRANTS)

/* The header of the map `grants`, in cache line 0. The first cache line to search for an address is `1 +
 * ((HASH_OF_ADDRESS >> 32) * homes >> 32)`.
 */
struct grant_header {
	__u64 multiplier;
	__u64 addend;
	__u32 homes;
	__u32 reserved[11 - OTHER_FACTOR_WORDS]; /* reserved[0]: earlier versions of Weir stored the owner of the map there */
	OTHER_FACTORS
};

/* A cache line with up to seven grants of one address to which several hostname patterns have a grant. In the
 * map `grants`, these cache lines follow the cache lines of addresses.
 */
struct grant_set {
	__u64 grants[SET_PLACES];
	__u32 next; /* index of the cache line with more grants of the same address; 0: there are no more */
	__u32 reserved;
};

union grants_entry {
	struct grant_header header;
	struct grant_line line;
	struct grant_set set;
};

/* A hostname pattern that a policy uses. The index of the pattern in the map `patterns` is the pattern
 * number. The number does not change while a policy uses the pattern.
 */
struct pattern {
	/* For program slots 0 and 1: index of the pattern among the names of that compiled policy, plus 1. 0: that
	 * compiled policy does not use the pattern. `third_names` has the same for slot 2.
	 */
	__u32 names[2];
	__u8 digest[24]; /* truncated SHA-256 of the pattern's text; zeros: the pattern number is free, or waits for an RCU grace period */
};

_Static_assert(sizeof(struct grant_header) == 64, "a line is a cache line");
_Static_assert(sizeof(struct grant_set) == 64, "a line is a cache line");
_Static_assert(sizeof(struct pattern) == 32, "a pattern does not straddle lines");

/* The value 1 of max_entries is a placeholder: the loader sets the sizes of `grants` and `patterns` before
 * it loads the BPF object.
 */
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

/* For each pattern number, the entry for program slot 2; `names` of struct pattern has those for slots 0 and
 * 1. This is a separate map, so that `patterns` has the same layout as in a build without a third slot, and
 * an upgrade keeps the learned addresses.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} third_names SEC(".maps");

static __always_inline void *grants_at(__u32 index)
{
	return bpf_map_lookup_elem(&grants, &index);
}

static __always_inline __u32 home_of(address_t address)
{
	struct grant_header *header = grants_at(0);

	if (!header)
		return 0;
	return 1 + ((HASH_OF_ADDRESS(header, address) >> 32) * header->homes >> 32);
}

static __always_inline void prefetch_grants(address_t address)
{
	struct grant_line *line = grants_at(home_of(address));

	if (line)
		(void)*(volatile __u32 *)&line->spilled;
}

/* Returns the grant of an address (its hostname pattern and its expiry), or 0 if the address has no grant. */
__noinline __u64 find_grant(address_argument_t argument)
{
	address_t address = passed_address(argument);
	__u32 index = home_of(address);

	if (is_unspecified(address))
		return 0;
	for (int probe = 0; probe < GRANT_PROBES; probe++) {
		struct grant_line *line = grants_at(index + probe);

		if (!line)
			return 0;
#pragma unroll
		for (int i = 0; i < GRANT_PLACES; i++) {
			__u64 grant = grant_at_place(line, i, address);

			if (grant)
				return grant;
		}
		if (!line->spilled)
			return 0;
	}
	return 0;
}

/* Returns the entry of `names` of struct pattern (or of `third_names`) for a program slot. */
static __always_inline __u32 name_in(__u32 slot, __u32 number)
{
	struct pattern *pattern;
	__u64 *third;

	if (slot & 2) {
		third = bpf_map_lookup_elem(&third_names, &number);
		return third ? *third : 0;
	}
	pattern = bpf_map_lookup_elem(&patterns, &number);
	if (!pattern)
		return 0;
	return slot ? pattern->names[1] : pattern->names[0];
}

/* Returns the verdict word that one grant (an address learned for a hostname pattern) gives in a rule block
 * (part of a rule list), or NO_MATCH. `where` is program slot << 32 | reference to the tree of hostnames.
 * `keys` is source port << 32 | port-map key. `target` is time << 32 | address class of the destination. The
 * time is the present time in units of 2^27 ns, or 0 to accept expired grants. The arguments are packed, and
 * this function calls no other BPF function, because it is at the end of the longest call chain. A call chain
 * may use 512 bytes of stack, and Linux 6.1 counts at least 32 bytes for each function.
 */
__noinline __u32 grant_word(__u64 where, __u64 keys, __u64 target, __u64 grant)
{
	__u32 number = grant, name, found;

	if (grant >> 32 <= target >> 32)
		return NO_MATCH;
	name = name_in(where >> 32, number);
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

/* Returns the lowest verdict word that the grants of the destination give in a rule block, or `word` if no
 * grant gives a lower one. `place` is address class of the destination << 32 | cache line of the rule list
 * << 3 | number of the rule block. The cache line after the rule list has two words for each rule block: the
 * tree of the block's names, and a port map. That port map gives a lower bound of the verdict words of all
 * names, so most calls return after its search. `keys` is source port << 32 | port-map key.
 */
__noinline __u32 named_word(__u32 slot_and_flags, __u64 place, address_argument_t destination, __u64 keys, __u32 word)
{
	__u32 slot = slot_and_flags & ~LOOKUP_FLAGS;
	struct image image = image_of(slot);
	struct line *line = line_at(image, ((__u32)place >> 3) + 1);
	__u64 where = (__u64)slot << 32, target = place >> 32, grant;
	__u32 index;

	if (!line)
		return 0;
	if (search_port_map(image, line->words[2 * (place & 7) + 1], keys, keys >> 32) >= word)
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
			__u64 less = (__u64)grant_word(where, keys, target, one) - word;

			/* The lower of two words without a branch, because the verifier checks each path through the
			 * 224 rounds. The word of a free place (0) is NO_MATCH.
			 */
			asm volatile("" : "+r"(less));
			word += less & (__s64)less >> 63;
		}
		index = set->next;
	}
	return word;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_RULES_H
#define WEIR_RULES_H

#define AUDITED 8
#define MAX_RULE_BLOCKS 7

#define HEADER_SOURCES 5
#define HEADER_BEHIND_LISTS 6
#define HEADER_HAS_NAMES 7
#define HEADER_BASES 10
/* Number of cache lines after a rule list that the search prefetches, because they probably contain its
 * rules. Must equal LINES_BEHIND_LIST in src/dataplane/image/program-image.ts.
 */
#define LINES_BEHIND_LIST 6
#define LIST_PORT_MAPS 14
#define NAMED_SHIFT 8
#define RULE_BLOCK_NAMED 0x80000000U

/* Returns the program slot of an active word: 0, 1 or 2. */
static __always_inline __u32 slot_of(__u32 active_word)
{
	return (active_word & 1) | (active_word >> 29 & 2);
}

/* Returns the index of the cache line of the rule list of a source, or 0 if the program image (compiled
 * policy) is damaged. `owner` is a result of `owner_of`. If the header of the image asks for a prefetch, the
 * function loads the six cache lines after the list, which probably contain the rules of the list.
 */
static __always_inline __u32 find_list_of(struct image image, address_argument_t source, address_argument_t destination, __u32 owner)
{
	struct line *header = family_header(image);
	__u32 source_class, index;
	__u64 last;

	if (!header || image.lines->words[0] != IMAGE_MAGIC)
		return 0;
	if (header->words[HEADER_HAS_NAMES])
		prefetch_grants(passed_address(destination));
	source_class = address_class(image.slot, passed_address(source));
	if (!is_class(source_class))
		return 0;
	if (owner && header->words[HEADER_BASES] != NONE)
		index = list_of_owner(image.slot, header->words[HEADER_BASES], source_class, owner);
	else
		index = search_tree(image, header->words[HEADER_SOURCES], source_class, NONE);
	prefetch(image, index);
	if (!header->words[HEADER_BEHIND_LISTS])
		return index;
	/* Compare the variable `last` itself with its lower and upper bound. If only `index` is compared, the
	 * verifier of Linux 6.1 derives no bound of `last`.
	 */
	last = (__u64)index + LINES_BEHIND_LIST;
	asm volatile("" : "+r"(last));
	if (last < LINES_BEHIND_LIST)
		return index;
	asm volatile("" : "+r"(last));
	if (last < settings.slot_lines) {
		struct line *line = image.lines + last;

#pragma unroll
		for (int i = 0; i < LINES_BEHIND_LIST; i++)
			(void)*(volatile __u32 *)line[-i].words;
	}
	return index;
}

/* Returns the result of `find_list_of` for the present owner of the source (a Kubernetes object). The image
 * of a policy without resolved selectors has no tree for sources with owners. For such an image, the function
 * does not read the owner, and sets `changes` to 0. Otherwise `changes` is the result of `count_of_changes`
 * before the search.
 */
static __always_inline __u32 find_list(struct image image, address_argument_t source, address_argument_t destination, __u16 *changes)
{
	struct line *header = family_header(image);
	__u64 owner = 0;

	if (header && header->words[HEADER_BASES] != NONE)
		owner = owner_of(image.slot, source);
	*changes = owner >> 32;
	return find_list_of(image, source, destination, owner);
}

/* Returns the lowest verdict word of rule block (part of a rule list) number `block`, without the hostname
 * rules of the block. The bit RULE_BLOCK_NAMED in the result means that the block has hostname rules. If
 * `block` is not below the number of rule blocks, the result is the default verdict word. Returns 0 if the
 * program image (compiled policy) is damaged. `keys` is source port << 32 | port-map key.
 */
static __always_inline __u32 find_word(struct image image, __u32 index, __u32 block, __u32 destination_class,
				       __u64 keys)
{
	__u32 count, tree, wildcard, port_maps, other, word = NO_MATCH;
	struct line *list = line_at(image, index);

	if (!list || !is_class(destination_class))
		return 0;
	count = list->words[0] & 0xff;
	/* Without the barrier, clang replaces the first comparison by a comparison with the constant 7. The
	 * verifier of Linux 6.1 then derives no bound of `block`.
	 */
	asm volatile("" : "+r"(block));
	if (block >= MAX_RULE_BLOCKS || block >= count)
		return list->words[1];
	tree = list->words[2 + 2 * block];
	wildcard = list->words[3 + 2 * block];
	if (tree != NONE) {
		port_maps = block == 0 && count < MAX_RULE_BLOCKS ? list->words[LIST_PORT_MAPS] : NONE;
		tree = search_tree(image, tree, destination_class, port_maps);
		word = search_port_map(image, tree, keys, keys >> 32);
	}
	if (wildcard != NONE) {
		other = search_port_map(image, wildcard, keys, keys >> 32);
		if (other < word)
			word = other;
	}
	return list->words[0] >> (NAMED_SHIFT + block) & 1 ? word | RULE_BLOCK_NAMED : word;
}

/* Searches one rule block like `find_word`. Not inlined, so that the BPF program has only one copy of the
 * search for these callers. `place` is cache line of the rule list << 3 | number of the rule block.
 */
__noinline __u32 rule_block_word(__u32 slot, __u32 place, __u32 destination_class, __u64 keys)
{
	return find_word(image_of(slot & ~LOOKUP_FLAGS), place >> 3, place & 7, destination_class, keys);
}

/* Returns the verdict word of the first rule block (part) of a rule list, or of the second block (or the
 * default) if no rule of the first block matches. The caller must check the result with `is_decided`:
 * hostname rules or later blocks can decide otherwise. For most packets the result is final.
 */
static __always_inline __u32 first_blocks_word(struct image image, __u32 list, __u32 destination_class, __u64 keys)
{
	__u32 word = find_word(image, list, 0, destination_class, keys);

	if (word == NO_MATCH)
		word = rule_block_word(image.slot, list << 3 | 1, destination_class, keys);
	return word;
}

static __always_inline bool is_decided(__u32 word)
{
	return !(word & RULE_BLOCK_NAMED) && word != NO_MATCH;
}

/* Returns the verdict word of a packet by the rule list at cache line `list`, or 0 if the program image
 * (compiled policy) is damaged. `slot` is the program slot, with EXPIRED_TOO or WITHOUT_GRANTS as flags.
 */
static __always_inline __u32 classify(__u32 slot, __u32 list, address_argument_t destination, __u32 port_map_key, __u32 source_port)
{
	__u32 destination_class = address_class(slot & ~LOOKUP_FLAGS, passed_address(destination));
	__u64 keys = (__u64)source_port << 32 | port_map_key;

#pragma nounroll
	for (__u32 block = 0; block <= MAX_RULE_BLOCKS; block++) {
		__u32 word = rule_block_word(slot, list << 3 | block, destination_class, keys);

		if (word & RULE_BLOCK_NAMED)
			word = slot & WITHOUT_GRANTS ? word & ~RULE_BLOCK_NAMED
						     : named_word(slot, (__u64)destination_class << 32 | list << 3 | block, destination,
								  keys, word & ~RULE_BLOCK_NAMED);
		if (word != NO_MATCH)
			return word;
	}
	return 0;
}

#endif

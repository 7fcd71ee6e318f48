/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CLASSIFY_H
#define WEIR_CLASSIFY_H

#include "search.h"
#include "grants.h"

#define AUDITED 8
#define MAX_SEGMENTS 7

#define HEADER_SOURCES 5
#define HEADER_BEHIND_LISTS 6
#define HEADER_HAS_NAMES 7
#define MAX_BEHIND_LIST 8
#define LIST_LEAVES 14
#define NAMED_SHIFT 8
#define SEGMENT_NAMED 0x80000000U

/* The first line of the slot that an active word names. */
static __always_inline __u32 slot_of(__u32 active_word)
{
	return active_word & 1 ? settings.slot_lines : 0;
}

/* The line of the list that judges a source; 0 where the image is damaged. */
static __always_inline __u32 find_list(__u32 slot, __u32 source, __u32 destination)
{
	struct line *header = bpf_map_lookup_elem(&program, &slot);
	__u32 index;

	if (!header || header->words[0] != IMAGE_MAGIC)
		return 0;
	if (header->words[HEADER_HAS_NAMES])
		touch_grants(destination);
	index = search_tree(slot, header->words[HEADER_SOURCES], source, NONE);
	for (int i = 1; i <= MAX_BEHIND_LIST; i++) {
		if (i > header->words[HEADER_BEHIND_LISTS])
			break;
		touch(slot, index + i);
	}
	return index;
}

/* The lowest word of a segment without its names, and SEGMENT_NAMED where it has some; behind the last segment the default
 * word. `place` is line of the list << 3 | segment, `keys` source port << 32 | leaf key.
 */
__noinline __u32 segment_word(__u32 base, __u32 place, __u32 destination, __u64 keys)
{
	__u32 slot = base & ~LOOKUP_FLAGS, segment = place & 7, count, tree, wildcard, leaves, other, word = NO_MATCH;
	struct line *list = line_at(slot, place >> 3);

	if (!list)
		return 0;
	count = list->words[0] & 0xff;
	/* Else clang asks whether it is 7, of which Linux 6.1 learns no bound. */
	asm volatile("" : "+r"(segment));
	if (segment >= MAX_SEGMENTS || segment >= count)
		return list->words[1];
	tree = list->words[2 + 2 * segment];
	wildcard = list->words[3 + 2 * segment];
	if (tree != NONE) {
		leaves = segment == 0 && count < MAX_SEGMENTS ? list->words[LIST_LEAVES] : NONE;
		tree = search_tree(slot, tree, destination, leaves);
		word = search_leaf(slot, tree, keys, keys >> 32);
	}
	if (wildcard != NONE) {
		other = search_leaf(slot, wildcard, keys, keys >> 32);
		if (other < word)
			word = other;
	}
	return list->words[0] >> (NAMED_SHIFT + segment) & 1 ? word | SEGMENT_NAMED : word;
}

/* The word that decides by a list, from the slot whose first line is `base`; 0 where the image is damaged. With EXPIRED_TOO
 * in `base`, grants count for as long as they are known.
 */
static __always_inline __u32 classify(__u32 base, __u32 list, __u32 destination, __u32 leaf_key, __u32 source_port)
{
	__u64 keys = (__u64)source_port << 32 | leaf_key;

#pragma nounroll
	for (__u32 segment = 0; segment <= MAX_SEGMENTS; segment++) {
		__u32 word = segment_word(base, list << 3 | segment, destination, keys);

		if (word & SEGMENT_NAMED)
			word = base & WITHOUT_GRANTS ? word & ~SEGMENT_NAMED
						     : named_word(base, list << 3 | segment, destination, keys,
								  word & ~SEGMENT_NAMED);
		if (word != NO_MATCH)
			return word;
	}
	return 0;
}

#endif

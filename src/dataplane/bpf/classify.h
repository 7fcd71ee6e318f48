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

/* The word that decides, from the slot whose first line is `base`; 0 where the image is damaged. With EXPIRED_TOO in
 * `base`, grants count for as long as they are known.
 */
__noinline __u32 classify(__u32 base, __u32 source, __u32 destination, __u32 leaf_key, __u32 source_port)
{
	__u32 slot = base & ~EXPIRED_TOO, leaves, index;
	struct line *header = bpf_map_lookup_elem(&program, &slot), *list;

	if (!header || header->words[0] != IMAGE_MAGIC)
		return 0;
	if (header->words[HEADER_HAS_NAMES])
		touch_grants(destination);
	index = search(slot, header->words[HEADER_SOURCES], source);
	for (int i = 1; i <= MAX_BEHIND_LIST; i++) {
		if (i > header->words[HEADER_BEHIND_LISTS])
			break;
		touch(slot, index + i);
	}
	list = line_at(slot, index);
	if (!list)
		return 0;
	leaves = (list->words[0] & 0xff) < MAX_SEGMENTS ? list->words[LIST_LEAVES] : NONE;
	for (int i = 0; i < MAX_SEGMENTS; i++) {
		__u32 destinations, wildcard, word = NO_MATCH;

		if (i >= (list->words[0] & 0xff))
			break;
		destinations = list->words[2 + 2 * i];
		if (destinations != NONE) {
			__u32 leaf = i == 0 && leaves != NONE
					     ? search_ahead(base & ~EXPIRED_TOO, destinations, destination, leaves)
					     : search(base & ~EXPIRED_TOO, destinations, destination);

			word = search_leaf(base & ~EXPIRED_TOO, leaf, leaf_key, source_port);
		}
		wildcard = list->words[3 + 2 * i];
		if (wildcard != NONE) {
			__u32 other = search_leaf(base & ~EXPIRED_TOO, wildcard, leaf_key, source_port);

			if (other < word)
				word = other;
		}
		if (list->words[0] >> (NAMED_SHIFT + i) & 1)
			word = named_word(base, (index + 1) << 3 | i, destination, (__u64)source_port << 32 | leaf_key, word);
		if (word != NO_MATCH)
			return word;
	}
	return list->words[1];
}

#endif

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

/* The word that decides, from the slot whose first line is `base`; 0 where the image is damaged. With EXPIRED_TOO in
 * `base`, grants count for as long as they are known.
 */
__noinline __u32 classify(__u32 base, __u32 source, __u32 destination, __u32 leaf_key, __u32 source_port)
{
	__u32 with_flags = base, segments, named, leaves, index;
	struct line *header, *list;

	base &= ~EXPIRED_TOO;
	header = bpf_map_lookup_elem(&program, &base);
	if (!header || header->words[0] != IMAGE_MAGIC)
		return 0;
	if (header->words[HEADER_HAS_NAMES])
		touch_grants(destination);
	index = search(base, header->words[HEADER_SOURCES], source);
	for (int i = 1; i <= MAX_BEHIND_LIST; i++) {
		if (i > header->words[HEADER_BEHIND_LISTS])
			break;
		touch(base, index + i);
	}
	list = line_at(base, index);
	if (!list)
		return 0;
	segments = list->words[0] & 0xff;
	named = list->words[0] >> 8;
	leaves = segments < MAX_SEGMENTS ? list->words[LIST_LEAVES] : NONE;
	for (int i = 0; i < MAX_SEGMENTS; i++) {
		__u32 destinations, wildcard, word = NO_MATCH;

		if (i >= segments)
			break;
		destinations = list->words[2 + 2 * i];
		wildcard = list->words[3 + 2 * i];
		if (destinations != NONE) {
			__u32 leaf = i == 0 && leaves != NONE ? search_ahead(base, destinations, destination, leaves)
							      : search(base, destinations, destination);

			word = search_leaf(base, leaf, leaf_key, source_port);
		}
		if (wildcard != NONE) {
			__u32 other = search_leaf(base, wildcard, leaf_key, source_port);

			if (other < word)
				word = other;
		}
		if (named >> i & 1) {
			__u32 other = named_word(with_flags, index + 1, i, destination, leaf_key, source_port, word);

			if (other < word)
				word = other;
		}
		if (word != NO_MATCH)
			return word;
	}
	return list->words[1];
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IMAGE_SEARCH_H
#define WEIR_IMAGE_SEARCH_H

#define NONE 0xffffffffU
#define NO_MATCH 0x7fffffffU
#define SLICE 0x80000000U
#define MAX_DEPTH 5
#define FIRST_HALF 6
#define HALF_KEYS 4
#define LINES_OF_LEAVES 4

/* 1 where the key is not above x, else 0; `above` is x + 1. The barrier keeps clang from making a jump of it. */
static __always_inline __u64 is_not_above(__u32 key, __u64 above)
{
	__u64 difference = (__u64)key - above;

	asm volatile("" : "+r"(difference));
	return difference >> 63;
}

/* The place of the last key that is not above x, of 4, 8 or 16 that ascend; of the first one nobody asks. Three are compared
 * at a time, since they do not wait for each other.
 */
static __always_inline __u32 place_among(const __u32 *keys, __u32 count, __u64 above)
{
	__u32 step = count > 4 ? count / 4 : 1, place, more = 0;

	place = is_not_above(keys[step], above) + is_not_above(keys[2 * step], above) + is_not_above(keys[3 * step], above);
	place *= step;
	keys += place;
#pragma unroll
	for (__u32 i = 1; i < step; i++)
		more += is_not_above(keys[i], above);
	/* Else clang ors them, of which Linux 6.1 learns no bound. */
	asm volatile("" : "+r"(more));
	return place + more;
}

/* What one slot holds. A line is reached by adding to the address of the first: a lookup for each would cost a dozen instructions. */
struct image {
	struct line *lines;
	__u32 slot;
};

static __always_inline struct image image_of(__u32 slot)
{
	struct image image = { .lines = bpf_map_lookup_elem(&program, &slot), .slot = slot };

	return image;
}

/* Line 0 is the header, which no search may lead to. The barriers keep the comparison beside what it is for: what clang takes
 * from the stack instead has no bound on Linux 6.1.
 */
static __always_inline struct line *line_at(struct image image, __u32 index)
{
	__u64 at = index;
	struct line *line;

	asm volatile("" : "+r"(at));
	if (!image.lines || at == 0 || at >= settings.slot_lines)
		return 0;
	line = image.lines + at;
	asm volatile("" : "+r"(line));
	return line;
}

/* Brings lines that will be needed into the cache while an earlier one is still on its way. What is not there, or not
 * what it was taken for, costs a load and decides nothing.
 */
static __always_inline void touch(struct image image, __u32 index)
{
	struct line *line = line_at(image, index);

	if (line)
		(void)*(volatile __u32 *)line->words;
}

/* A map of at most four intervals: half a line, four keys and then their values. */
static __always_inline __u32 search_half(struct line *line, __u32 second, __u64 above)
{
	const __u32 *half = line->words + (second & 1) * 2 * HALF_KEYS;

	return half[HALF_KEYS + place_among(half, HALF_KEYS, above)];
}

/* The value that holds at x in the tree `ref` (line << 3 | depth); 0, which is no value, where the image is damaged.
 * `leaves` + 4 * n is the first of the lines that bottom line n leads to; NONE where nobody knows.
 */
static __always_inline __u32 search_tree(struct image image, __u32 ref, __u32 x, __u32 leaves)
{
	__u64 above = (__u64)x + 1;
	__u32 index = ref >> 3;
	__u32 depth = ref & 7, below, last;
	struct line *line;

	if (depth >= FIRST_HALF) {
		line = line_at(image, index);
		return line ? search_half(line, depth, above) : 0;
	}
	for (int level = 0; level < MAX_DEPTH && depth > 0; level++, depth--) {
		line = line_at(image, index);
		if (!line)
			return 0;
		below = place_among(line->words, LINE_WORDS, above);
		last = line->words[0] & 15;
		if (below > last)
			below = last;
		index = (line->words[0] >> 4) + below;
	}
	if (leaves != NONE) {
#pragma unroll
		for (int i = 0; i < LINES_OF_LEAVES; i++)
			touch(image, leaves + LINES_OF_LEAVES * index + i);
	}
	line = line_at(image, index);
	if (!line)
		return 0;
	return line->words[LINE_WORDS / 2 + place_among(line->words, LINE_WORDS / 2, above)];
}

__noinline __u32 search(__u32 slot, __u32 ref, __u32 x)
{
	return search_tree(image_of(slot), ref, x, NONE);
}

static __always_inline __u32 search_leaf(struct image image, __u32 leaf, __u32 leaf_key, __u32 source_port)
{
	__u32 found;

	if (leaf == NONE)
		return NO_MATCH;
	found = search_tree(image, leaf, leaf_key, NONE);
	if (found & SLICE)
		found = search(image.slot, found & ~SLICE, source_port);
	return found;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IMAGE_SEARCH_H
#define WEIR_IMAGE_SEARCH_H

#define NONE 0xffffffffU
#define NO_MATCH 0x7fffffffU
#define SLICE 0x80000000U
#define MAX_DEPTH 5
#define FIRST_HALF 6
#define HALF_KEYS 4
#define LINES_OF_PORT_MAPS 4

/* Returns 1 if `key` <= x, else 0. The caller passes x + 1 as `above`. The asm barrier stops clang from
 * compiling the subtraction to a conditional jump, so that the search has no branches.
 */
static __always_inline __u64 is_not_above(__u32 key, __u64 above)
{
	__u64 difference = (__u64)key - above;

	asm volatile("" : "+r"(difference));
	return difference >> 63;
}

/* Returns the index of the last key that is <= x, among 4, 8 or 16 ascending keys. The caller passes x + 1 as
 * `above`. The function does not compare the first key, because that key is a lower bound of x. The first
 * three comparisons do not depend on each other, so the CPU executes them in parallel.
 */
static __always_inline __u32 index_among(const __u32 *keys, __u32 count, __u64 above)
{
	__u32 step = count > 4 ? count / 4 : 1, place, more = 0;

	place = is_not_above(keys[step], above) + is_not_above(keys[2 * step], above) + is_not_above(keys[3 * step], above);
	place *= step;
	keys += place;
#pragma unroll
	for (__u32 i = 1; i < step; i++)
		more += is_not_above(keys[i], above);
	/* Without the barrier, clang adds the terms by OR. The verifier of Linux 6.1 derives no bound from an OR
	 * and rejects the access that follows.
	 */
	asm volatile("" : "+r"(more));
	return place + more;
}

/* The program image (compiled policy) in one program slot. `lines` is the address of cache line 0. The search
 * computes the addresses of all other cache lines from `lines`, because a map lookup for each cache line
 * would cost a dozen instructions.
 */
struct image {
	struct line *lines;
	__u32 slot;
};

static __always_inline struct image image_of(__u32 slot)
{
	struct image image = { .lines = bpf_map_lookup_elem(&program, &slot), .slot = slot };

	return image;
}

/* Returns cache line `index` of the program image (compiled policy), or 0 if the index is out of bounds.
 * Index 0 is the header, which no search may reach. The barriers keep the bounds check next to the address
 * computation. Otherwise clang may reload the index from the stack, and the verifier of Linux 6.1 forgets its
 * bound.
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

/* Loads a cache line of the program image (compiled policy) into the CPU cache before the search needs it. A
 * wrong `index` costs one load and does not change the verdict.
 */
static __always_inline void prefetch(struct image image, __u32 index)
{
	struct line *line = line_at(image, index);

	if (line)
		(void)*(volatile __u32 *)line->words;
}

/* Searches a map of at most four intervals. Such a map is half a cache line: four keys and then their four
 * values. `second` is odd for the second half of the cache line.
 */
static __always_inline __u32 search_half(struct line *line, __u32 second, __u64 above)
{
	const __u32 *half = line->words + (second & 1) * 2 * HALF_KEYS;

	return half[HALF_KEYS + index_among(half, HALF_KEYS, above)];
}

/* Returns the value that the tree `ref` (cache line << 3 | depth) has for x, or 0 if the program image
 * (compiled policy) is damaged; 0 is never a valid value. If `port_maps` is not NONE, the function also
 * prefetches four cache lines of port maps, from cache line `port_maps` + 4 * n on. n is the cache line at
 * the bottom of the tree that has the value.
 */
static __always_inline __u32 search_tree(struct image image, __u32 ref, __u32 x, __u32 port_maps)
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
		below = index_among(line->words, LINE_WORDS, above);
		last = line->words[0] & 15;
		if (below > last)
			below = last;
		index = (line->words[0] >> 4) + below;
	}
	if (port_maps != NONE) {
#pragma unroll
		for (int i = 0; i < LINES_OF_PORT_MAPS; i++)
			prefetch(image, port_maps + LINES_OF_PORT_MAPS * index + i);
	}
	line = line_at(image, index);
	if (!line)
		return 0;
	return line->words[LINE_WORDS / 2 + index_among(line->words, LINE_WORDS / 2, above)];
}

__noinline __u32 search(__u32 slot, __u32 ref, __u32 x)
{
	return search_tree(image_of(slot), ref, x, NONE);
}

static __always_inline __u32 search_port_map(struct image image, __u32 port_map, __u32 port_map_key, __u32 source_port)
{
	__u32 found;

	if (port_map == NONE)
		return NO_MATCH;
	found = search_tree(image, port_map, port_map_key, NONE);
	if (found & SLICE)
		found = search(image.slot, found & ~SLICE, source_port);
	return found;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The classes of IPv6 addresses: intervals of addresses that no rule of the policy can tell apart. The image
 * has a search tree for each word of the addresses, which src/dataplane/image/class-tree.ts describes.
 */
#ifndef WEIR_IPV6_ADDRESS_CLASS_H
#define WEIR_IPV6_ADDRESS_CLASS_H

#define ADDRESS_WORDS 4

/* Index of a word in the header of the image: the cache line of the header of IPv6. Must equal `HEADER.ipv6`
 * in src/dataplane/image/program-image.ts.
 */
#define HEADER_IPV6 11
/* Index of a word in the header of IPv6: the tree of the first word of an address. Must equal
 * `IPV6_HEADER.classes` there.
 */
#define HEADER_CLASSES 12
/* Bit of a value in a tree of classes: the other bits are the tree of the next word of the address. Without
 * the bit, the value is the number of the class + 1. Must equal `NEXT_WORD` in
 * src/dataplane/image/class-tree.ts.
 */
#define NEXT_WORD 0x80000000U
/* The result of `address_class` for a damaged image. No class has this number. */
#define NO_CLASS 0xffffffffU

/* Returns whether `address_class` has found a class. */
static __always_inline bool is_class(__u32 class)
{
	return class != NO_CLASS;
}

/* Returns the cache line of the program image with the header fields of IPv6, or 0 if the image has no tables
 * of IPv6.
 */
static __always_inline struct line *family_header(struct image image)
{
	return image.lines ? line_at(image, image.lines->words[HEADER_IPV6]) : 0;
}

/* Searches the class of an address, of which `high` and `low` are the halves. The value 0 of a damaged image
 * gives NO_CLASS, like a value that refers to a tree after the last word.
 */
__noinline __u32 class_of(__u32 slot, __u64 high, __u64 low)
{
	struct line *header = family_header(image_of(slot));
	__u32 found;

	if (!header)
		return NO_CLASS;
	found = header->words[HEADER_CLASSES] | NEXT_WORD;
	for (int word = 0; word < ADDRESS_WORDS && found & NEXT_WORD; word++) {
		found = search(slot, found & ~NEXT_WORD, high >> 32);
		high = high << 32 | low >> 32;
		low <<= 32;
	}
	return found & NEXT_WORD ? NO_CLASS : found - 1;
}

/* Returns the class of an address: the 32-bit number by which the other trees of the image in a program slot
 * know the address. Returns NO_CLASS if the image is damaged.
 */
static __always_inline __u32 address_class(__u32 slot, address_t address)
{
	return class_of(slot, high_half(address), low_half(address));
}

#endif

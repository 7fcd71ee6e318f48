/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV4_ADDRESS_CLASS_H
#define WEIR_IPV4_ADDRESS_CLASS_H

/* Returns the class of an address: the 32-bit number by which the trees of the image in a program slot know
 * the address. For IPv4 it is the address itself; a longer address needs a search for its number.
 */
static __always_inline __u32 address_class(__u32 slot, address_t address)
{
	(void)slot;
	return address;
}

/* Returns whether `address_class` has found a class. It finds none if the program image is damaged. */
static __always_inline bool is_class(__u32 class)
{
	(void)class;
	return true;
}

/* Returns the cache line of the program image with the header fields of this IP family (`HEADER_SOURCES` and
 * the other offsets in classify/rules.h), or 0 if the image has none. For IPv4 it is the header of the image.
 */
static __always_inline struct line *family_header(struct image image)
{
	return image.lines;
}

#endif

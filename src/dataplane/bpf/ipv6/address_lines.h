/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The cache lines of the maps `grants` and `members` that have addresses; see ipv4/address_lines.h. User
 * space does not fill these maps for IPv6 yet.
 */
#ifndef WEIR_IPV6_ADDRESS_LINES_H
#define WEIR_IPV6_ADDRESS_LINES_H

#define GRANT_PLACES 2
#define MEMBER_PLACES 2

/* A cache line of up to two addresses, each with its grant. Address 0 marks a free entry. */
struct grant_line {
	/* Number of addresses that had no room in this cache line and are in a later cache line. 0: a search
	 * for an address ends at this cache line.
	 */
	__u32 spilled;
	__u32 reserved;
	address_t addresses[GRANT_PLACES];
	__u64 grants[GRANT_PLACES];
	__u64 unused;
};

/* A cache line of up to two members: addresses with an owner. An entry of `sets` is the map index of the set
 * of selectors of the address at the same place; 0: no member.
 */
struct member_line {
	__u32 spilled; /* as in struct grant_line */
	/* Number of addresses that belong into this cache line and have no room in any cache line. If it is
	 * not 0, an address that the search does not find is deny-only (DENY_ONLY_SET).
	 */
	__u32 refused;
	address_t addresses[MEMBER_PLACES];
	__u32 sets[MEMBER_PLACES];
	__u64 unused[2];
};

/* Returns the map index of the set of the member in one place of a cache line; 0 if that member is not this
 * address.
 */
static __always_inline __u32 set_of_member(struct member_line *line, __u32 place, address_t address)
{
	return same_address(line->addresses[place], address) ? READ_ONCE(line->sets[place]) : 0;
}

#endif

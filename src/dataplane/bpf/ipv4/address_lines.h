/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The cache lines of the maps `grants` and `members` that have addresses: the size of an address decides how
 * many fit into a line.
 */
#ifndef WEIR_IPV4_ADDRESS_LINES_H
#define WEIR_IPV4_ADDRESS_LINES_H

#define GRANT_PLACES 5
#define MEMBER_PLACES 7

/* Maximum number of cache lines of `grants`, and of `members`, that a search for an address reads. */
#define GRANT_PROBES 8
#define MEMBER_PROBES 8

/* The fields of the headers of both maps with the random factors of the other words of an address, and the
 * number of 32-bit words that these fields take: an address is one word.
 */
#define OTHER_FACTORS
#define OTHER_FACTOR_WORDS 0

/* The hash of an address by the random factors in the header of its map. A sender of DNS answers chooses the
 * addresses, so it must not be able to compute the hash. User space computes the same hash.
 */
#define HASH_OF_ADDRESS(header, address) (mix(address) * (header)->multiplier + (header)->addend)

/* A cache line of up to five addresses, each with its grant: the hostname pattern for which the address was
 * learned. A grant is `expiry << 32 | pattern number`, or `latest expiry << 32 | GRANT_SET | cache line of
 * the set`. The value 0 means that the address has no grant. An expiry is a time of the monotonic clock in
 * units of 2^27 ns, rounded down. Address 0 marks a free entry.
 */
struct grant_line {
	/* Number of addresses that had no room in this cache line and are in a later cache line. 0: a search for
	 * an address ends at this cache line.
	 */
	__u32 spilled;
	address_t addresses[GRANT_PLACES];
	__u64 grants[GRANT_PLACES];
};

/* Returns the grant in one place of a cache line; 0 if that grant is not of this address. User space stores a
 * grant after its address, and removes a grant before its address.
 */
static __always_inline __u64 grant_at_place(struct grant_line *line, __u32 place, address_t address)
{
	return same_address(line->addresses[place], address) ? *(volatile __u64 *)&line->grants[place] : 0;
}

/* A cache line of up to seven members: addresses with an owner. A member is `map index of its set of
 * selectors << 32 | address`; 0: no member.
 */
struct member_line {
	/* Number of addresses that had no room in this cache line and are in a later one. 0: a search ends here. */
	__u32 spilled;
	/* Number of addresses that belong into this cache line and have no room in any cache line. If it is
	 * not 0, an address that the search does not find is deny-only (DENY_ONLY_SET).
	 */
	__u32 refused;
	__u64 members[MEMBER_PLACES];
};

/* Returns the map index of the set of the member in one place of a cache line; 0 if that member is not this
 * address.
 */
static __always_inline __u32 set_of_member(struct member_line *line, __u32 place, address_t address)
{
	__u64 member = *(volatile __u64 *)&line->members[place];

	return (__u32)member == address ? member >> 32 : 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The cache lines of the maps `grants` and `members` that have addresses; see ipv4/address_lines.h.
 */
#ifndef WEIR_IPV6_ADDRESS_LINES_H
#define WEIR_IPV6_ADDRESS_LINES_H

#define GRANT_PLACES 2
#define MEMBER_PLACES 2

/* Two places are full more often than five, so a search reads more cache lines than for IPv4. */
#define GRANT_PROBES 16
#define MEMBER_PROBES 16

/* The random factors of the upper three words of an address; `multiplier` is that of the lowest word. */
#define OTHER_FACTORS __u64 others[3];
#define OTHER_FACTOR_WORDS 6

/* The sum of the products of all four words and their factors. Without a factor of its own for each word, a
 * sender of DNS answers could choose addresses with equal hashes.
 */
#define HASH_OF_ADDRESS(header, address)                                                                       \
	(mix(low_half(address)) * (header)->multiplier + mix(low_half(address) >> 32) * (header)->others[0] +  \
	 mix(high_half(address)) * (header)->others[1] + mix(high_half(address) >> 32) * (header)->others[2] + \
	 (header)->addend)

/* A cache line of up to two addresses, each with its grant: the hostname pattern for which DNS resolved the
 * address. Address 0 marks a free entry.
 */
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

/* Whether user space has stored this address. Reads both halves from memory, in any case. */
static __always_inline bool is_stored(address_t *stored, address_t address)
{
	__u64 *halves = (__u64 *)stored;

	return READ_ONCE(halves[0]) == low_half(address) && READ_ONCE(halves[1]) == high_half(address);
}

/* Returns the grant in one place of a cache line; 0 if that grant is not of this address. User space stores
 * the address in two parts. So it stores an address while its grant is 0, and clears an address in a grace
 * period in which the grant was 0. This function reads the grant first: with a grant that is not 0, the
 * address is complete. This order relies on x86.
 */
static __always_inline __u64 grant_at_place(struct grant_line *line, __u32 place, address_t address)
{
	__u64 grant = READ_ONCE(line->grants[place]);

	return grant && is_stored(&line->addresses[place], address) ? grant : 0;
}

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
 * address. The rules for stores and loads are those of `grant_at_place`, with a set in place of a grant.
 */
static __always_inline __u32 set_of_member(struct member_line *line, __u32 place, address_t address)
{
	__u32 set = READ_ONCE(line->sets[place]);

	return set && is_stored(&line->addresses[place], address) ? set : 0;
}

#endif

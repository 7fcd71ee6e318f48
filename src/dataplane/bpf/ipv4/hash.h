/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The hashes of IPv4 addresses. */
#ifndef WEIR_IPV4_HASH_H
#define WEIR_IPV4_HASH_H

/* Returns a number from the bits of an address: the address itself. It is the input of a hash that only the
 * datapath computes.
 */
static __always_inline __u32 number_of_address(address_t address)
{
	return address;
}

/* Returns a number of the source of a packet, for the limits of each source: the address itself. */
static __always_inline __u32 number_of_source(address_t source)
{
	return source;
}

/* Returns the input of the hash of a flow key (`hash_of`) for its two addresses. */
static __always_inline __u64 number_of_key_addresses(key_addresses_t addresses)
{
	return addresses;
}

#endif

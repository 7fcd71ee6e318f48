/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The hashes of IPv6 addresses. A host can choose from 2^64 addresses of its own, so a hash that it could
 * compute would let it choose addresses with equal hashes. So the hashes depend on the seed of the flow
 * table.
 */
#ifndef WEIR_IPV6_HASH_H
#define WEIR_IPV6_HASH_H

/* Returns the hash of half an address, by the function NH (RFC 4418, 5.2): the key is added to the two 32-bit
 * numbers, which are then multiplied. `constant` makes keys that differ from one seed.
 */
static __always_inline __u64 hash_of_half(__u64 half, __u64 constant)
{
	__u64 key = (settings.flow_seed ^ constant) * 0x9e3779b97f4a7c15ULL;

	return (__u64)((__u32)half + (__u32)key) * (__u32)((half >> 32) + (key >> 32));
}

/* Returns 32 bits of a hash by NH. The hashes of two neighbouring prefixes differ by a number of 32 bits, so
 * their upper halves are often equal. After the multiplication, the upper half depends on all 64 bits.
 */
static __always_inline __u32 number_of_hash(__u64 hash)
{
	return hash * 0x9e3779b97f4a7c15ULL >> 32;
}

/* Returns a number of the source of a packet, for the limits of each source: the hash of its upper 64 bits. A
 * host has all addresses of its /64 prefix (RFC 8981), so it would have no limit by the whole address.
 */
static __always_inline __u32 number_of_source(address_t source)
{
	return number_of_hash(hash_of_half(high_half(source), 0xa0761d6478bd642fULL));
}

/* Returns a number from the bits of an address, the input of a hash that only the datapath computes. */
static __always_inline __u32 number_of_address(address_t address)
{
	return number_of_hash(hash_of_half(high_half(address), 0xa0761d6478bd642fULL) + hash_of_half(low_half(address), 0xe7037ed1a0b428dbULL));
}

/* Returns the input of the hash of a flow key (`hash_of`) for its two addresses. */
static __always_inline __u64 number_of_key_addresses(key_addresses_t addresses)
{
	return hash_of_half(high_half(addresses.low), 0xa0761d6478bd642fULL) + hash_of_half(low_half(addresses.low), 0xe7037ed1a0b428dbULL) +
	       hash_of_half(high_half(addresses.high), 0x8ebc6af09c88c6e3ULL) + hash_of_half(low_half(addresses.high), 0x589965cc75374cc3ULL);
}

#endif

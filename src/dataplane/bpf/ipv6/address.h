/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The addresses of IPv6, and other types that differ between the IP families; see ipv4/address.h. */
#ifndef WEIR_IPV6_ADDRESS_H
#define WEIR_IPV6_ADDRESS_H

/* An IP address in host byte order. The alignment is that of its halves. */
typedef unsigned __int128 address_t __attribute__((aligned(8)));

/* An IP address in network byte order, as in a header. */
typedef struct {
	__be64 high;
	__be64 low;
} header_address_t;

/* struct ipv6hdr with addresses of two 64-bit numbers. */
typedef struct {
	__be32 label; /* version, traffic class, flow label */
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	header_address_t saddr;
	header_address_t daddr;
} ip_header_t;

/* The number by which a fragment header names the datagram. */
typedef __u32 fragment_id_t;

/* An address as an argument of a function that is not inlined. The verifier does not accept an argument of
 * 128 bits, so the argument is a pointer to a copy of the address on the stack of the caller.
 */
typedef const address_t *address_argument_t;
#define PASS_ADDRESS(address) ((const address_t[]){ address })

/* The verifier requires that a function that it checks alone compares a pointer argument with 0. */
static __always_inline address_t passed_address(address_argument_t argument)
{
	return argument ? *argument : 0;
}

static __always_inline __u64 high_half(address_t address)
{
	return address >> 64;
}

static __always_inline __u64 low_half(address_t address)
{
	return address;
}

static __always_inline address_t address_of_header(header_address_t address)
{
	return (address_t)bpf_be64_to_cpu(address.high) << 64 | bpf_be64_to_cpu(address.low);
}

static __always_inline bool same_address(address_t a, address_t b)
{
	return a == b;
}

/* Returns whether an address is ::, the source of a host without an address. */
static __always_inline bool is_unspecified(address_t address)
{
	return !address;
}

/* Returns the hash of an address for the maps `grants` and `members`. */
static __always_inline __u64 mix(address_t address)
{
	__u64 mixed = (high_half(address) * 0x9e3779b97f4a7c15ULL ^ low_half(address)) * 0xd6e8feb86659fd93ULL;

	return mixed ^ mixed >> 32;
}

#endif

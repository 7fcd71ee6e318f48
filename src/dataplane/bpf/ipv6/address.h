/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The addresses of IPv6, and other types that differ between the IP families; see ipv4/address.h. */
#ifndef WEIR_IPV6_ADDRESS_H
#define WEIR_IPV6_ADDRESS_H

/* An IP address in host byte order. The alignment is that of its halves. */
typedef unsigned __int128 address_t __attribute__((aligned(8)));

/* The bit of `flags` in events that tells the family of their addresses. */
#define EVENT_FAMILY EVENT_IPV6

/* The fields of struct port with the addresses of the bridge, and whether routes show the hosts behind it. */
#define PORT_OWN_ADDRESSES ipv6_addresses
#define PORT_HAS_ROUTES has_ipv6_routes

/* An IP address in network byte order, as in a header. */
typedef struct {
	__be64 high;
	__be64 low;
} header_address_t;

/* The two addresses of a flow key, in the layout of struct flow_key. */
typedef struct {
	address_t low;
	address_t high;
} key_addresses_t;

/* The bytes that fill the second cache line of a flow, and the end of struct join_key. */
#define FLOW_PADDING __u64 unused[5];
#define JOIN_KEY_PADDING __u32 reserved;

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

/* The field of struct fragments for the protocol of the datagram. If extension headers follow the fragment
 * header, the first fragment alone has the protocol.
 */
#define FRAGMENTS_PROTOCOL __u64 protocol;

/* Listen address of the DNS proxy's transparent sockets: 100::53, of a prefix that no route leads to (RFC
 * 6666). Packets reach these sockets only through `divert`.
 */
#define DIVERT_ADDRESS ((address_t)0x0100000000000000ULL << 64 | 0x53)

/* An address as an argument of a function. The verifier does not accept an argument of 128 bits, so the
 * argument is a pointer to the address, which a struct in memory has.
 */
typedef const address_t *address_argument_t;
#define PASS_ADDRESS(address) (&(address))

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

static __always_inline header_address_t header_address_of(address_t address)
{
	return (header_address_t){ bpf_cpu_to_be64(high_half(address)), bpf_cpu_to_be64(low_half(address)) };
}

static __always_inline bool same_header_address(header_address_t a, header_address_t b)
{
	return a.high == b.high && a.low == b.low;
}

static __always_inline bool is_no_header_address(header_address_t address)
{
	return !(address.high | address.low);
}

/* Returns a number from the bits of an address, for a hash. */
static __always_inline __u32 number_of_header_address(header_address_t address)
{
	__u64 mixed = (address.high ^ address.low * 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL;

	return mixed >> 32;
}

static __always_inline bool same_address(address_t a, address_t b)
{
	return a == b;
}

/* Returns whether `a` is the high address of a flow key that has both addresses. */
static __always_inline bool is_higher_address(address_t a, address_t b)
{
	return a > b;
}

/* Returns whether an address is ::, the source of a host without an address. */
static __always_inline bool is_unspecified(address_t address)
{
	return !address;
}

/* IPv6 has no block of addresses for "this network". Its counterpart, ::, is the source of a host without an
 * address, and no route leads to it.
 */
static __always_inline bool is_on_this_network(address_t address)
{
	return is_unspecified(address);
}

/* Returns whether an address is ::1, or an IPv4 address in the form of IPv6 (::ffff:0:0/96), which stands for
 * any address of IPv4 and never is in a packet between hosts.
 */
static __always_inline bool is_loopback(address_t address)
{
	return address == 1 || address >> 32 == 0xffff;
}

/* IPv6 has no broadcast addresses. */
static __always_inline bool is_multicast_or_broadcast(address_t address)
{
	return address >> 120 == 0xff;
}

/* Returns whether an address is in fe80::/10. The network stack forwards no packet from or to such an address
 * (RFC 4291, 2.5.6).
 */
static __always_inline bool has_link_scope(address_t address)
{
	return address >> 118 == 0xfe80 >> 6;
}

static __always_inline bool is_martian(address_t source)
{
	return is_multicast_or_broadcast(source) || is_loopback(source) || is_unspecified(source);
}

static __always_inline bool is_special_destination(address_t destination)
{
	return is_multicast_or_broadcast(destination) || is_unspecified(destination);
}

static __always_inline bool is_in_prefix(address_t address, address_t mask, address_t prefix)
{
	return (address & mask) == prefix;
}

#define KEY_ADDRESSES(low, high) ((key_addresses_t){ low, high })

static __always_inline bool same_key_addresses(key_addresses_t a, key_addresses_t b)
{
	return a.low == b.low && a.high == b.high;
}

#endif

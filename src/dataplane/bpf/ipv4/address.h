/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The addresses of IPv4, and other types that differ between the IP families. The headers outside of this
 * folder have the type `address_t` for an address, and handle an address only by the functions of this file.
 * So they can be compiled with another file for addresses of another size, which may be structs.
 */
#ifndef WEIR_IPV4_ADDRESS_H
#define WEIR_IPV4_ADDRESS_H

/* An IP address in host byte order. */
typedef __u32 address_t;

/* The bit of `flags` in events that tells the family of their addresses: none. */
#define EVENT_FAMILY 0

/* The fields of struct port with the addresses of the bridge, and whether routes show the hosts behind it. */
#define PORT_OWN_ADDRESSES addresses
#define PORT_HAS_ROUTES has_routes

/* An IP address in network byte order, as in a header. */
typedef __be32 header_address_t;

/* The two addresses of a flow key, in the layout of struct flow_key. */
typedef __u64 key_addresses_t;

/* The bytes that fill the cache lines of a flow, and the end of struct join_key: none. */
#define FLOW_PADDING
#define JOIN_KEY_PADDING

typedef struct iphdr ip_header_t;

/* The number by which a header names the datagram of a fragment. */
typedef __u16 fragment_id_t;

/* The field of struct fragments for the protocol of the datagram: none, because each fragment has the
 * protocol.
 */
#define FRAGMENTS_PROTOCOL

/* Listen address of the DNS proxy's transparent sockets. The datapath drops packets of clients to a loopback
 * address, so packets reach these sockets only through `divert`.
 */
#define DIVERT_ADDRESS 0x7f530035 /* 127.83.0.53 */

/* An address as an argument of a function that is not inlined. Such a function takes only numbers of 64 bits
 * and pointers, so a longer address has a pointer type here. PASS_ADDRESS makes the argument of an address in
 * memory, and `passed_address` the address of an argument.
 */
typedef address_t address_argument_t;
#define PASS_ADDRESS(address) (address)

static __always_inline address_t passed_address(address_argument_t argument)
{
	return argument;
}

static __always_inline address_t address_of_header(header_address_t address)
{
	return bpf_ntohl(address);
}

static __always_inline header_address_t header_address_of(address_t address)
{
	return bpf_htonl(address);
}

static __always_inline bool is_no_header_address(header_address_t address)
{
	return !address;
}

static __always_inline bool same_header_address(header_address_t a, header_address_t b)
{
	return a == b;
}

/* Returns a number from the bits of an address, for a hash. */
static __always_inline __u32 number_of_header_address(header_address_t address)
{
	return address;
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

/* Returns whether an address is 0.0.0.0: the source of a host without an address. */
static __always_inline bool is_unspecified(address_t address)
{
	return !address;
}

/* Returns whether an address is in 0.0.0.0/8. The network stack forwards no packet from or to such an address
 * (RFC 1122, 3.2.1.3).
 */
static __always_inline bool is_on_this_network(address_t address)
{
	return address >> 24 == 0;
}

static __always_inline bool is_loopback(address_t address)
{
	return address >> 24 == 127;
}

static __always_inline bool is_multicast_or_broadcast(address_t address)
{
	return address >= 0xe0000000 && (address < 0xf0000000 || address == 0xffffffff);
}

/* The network stack forwards all unicast addresses of IPv4. */
static __always_inline bool has_link_scope(address_t address)
{
	(void)address;
	return false;
}

static __always_inline bool is_martian(address_t source)
{
	return is_multicast_or_broadcast(source) || is_loopback(source) || is_on_this_network(source);
}

/* Returns whether no route leads to an address: the datapath does not look for it in the copied routes. */
static __always_inline bool is_special_destination(address_t destination)
{
	return is_multicast_or_broadcast(destination) || destination >> 24 == 0;
}

static __always_inline bool is_in_prefix(address_t address, address_t mask, address_t prefix)
{
	return (address & mask) == prefix;
}

/* Returns the address `base` + the bits of `number` that `mask` has. */
static __always_inline address_t address_in(address_t base, address_t mask, __u32 number)
{
	return base + (number & mask);
}

/* Returns the two addresses of a flow key in the layout of struct flow_key. */
#define KEY_ADDRESSES(low, high) ((__u64)(high) << 32 | (low))

static __always_inline bool same_key_addresses(key_addresses_t a, key_addresses_t b)
{
	return a == b;
}

#endif

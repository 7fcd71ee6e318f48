/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The IPv6 fields of a route lookup by `bpf_fib_lookup`. */
#ifndef WEIR_IPV6_LOOKUP_H
#define WEIR_IPV6_LOOKUP_H

/* The kernel's number of the IP family: AF_INET6. */
#define IP_FAMILY 10

/* The field of `struct active` with the time until which packets of this family are sent directly. */
#define DIRECT_UNTIL ipv6_direct_until_ns

/* The bit of this family in the field `translates` of `struct active`. */
#define TRANSLATES_FAMILY TRANSLATES_IPV6

/* The network stack translates all packets of IPv6 (NAT). User space then allows no direct sending. */
#define CAN_SEND_TRANSLATED false

static __always_inline void set_fib_class(struct bpf_fib_lookup *fib, __u8 traffic_class)
{
	fib->flowinfo = bpf_htonl((__u32)traffic_class << 20);
}

static __always_inline void set_fib_source(struct bpf_fib_lookup *fib, address_t source)
{
	*(header_address_t *)fib->ipv6_src = header_address_of(source);
}

static __always_inline void set_fib_destination(struct bpf_fib_lookup *fib, address_t destination)
{
	*(header_address_t *)fib->ipv6_dst = header_address_of(destination);
}

/* Returns an address as the source of a lookup of the route back to a host. For a link-local or multicast
 * source, the kernel answers "not forwarded" whatever the destination. So the result for such an address is
 * ::, which no routing rule for source addresses matches.
 */
static __always_inline address_t source_of_way_back(address_t address)
{
	return is_multicast_or_broadcast(address) || has_link_scope(address) ? 0 : address;
}

/* Returns the gateway that a lookup found; :: if the next hop is the destination itself. */
static __always_inline header_address_t gateway_of(const struct bpf_fib_lookup *fib, address_t destination)
{
	const header_address_t *found = (const header_address_t *)fib->ipv6_dst;

	return same_header_address(*found, header_address_of(destination)) ? (header_address_t){} : *found;
}

#endif

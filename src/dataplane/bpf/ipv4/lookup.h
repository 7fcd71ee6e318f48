/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The IPv4 fields of a route lookup by `bpf_fib_lookup`. */
#ifndef WEIR_IPV4_LOOKUP_H
#define WEIR_IPV4_LOOKUP_H

/* The kernel's number of the IP family: AF_INET. */
#define IP_FAMILY 2

/* The field of `struct active` with the time until which packets of this family are sent directly. */
#define DIRECT_UNTIL direct_until_ns

/* The bit of this family in the field `translates` of `struct active`. */
#define TRANSLATES_FAMILY TRANSLATES_IPV4

/* Whether the datapath can translate packets of established connections (NAT), and send them directly. */
#define CAN_SEND_TRANSLATED true

static __always_inline void set_fib_class(struct bpf_fib_lookup *fib, __u8 tos)
{
	fib->tos = tos;
}

static __always_inline void set_fib_source(struct bpf_fib_lookup *fib, address_t source)
{
	fib->ipv4_src = header_address_of(source);
}

static __always_inline void set_fib_destination(struct bpf_fib_lookup *fib, address_t destination)
{
	fib->ipv4_dst = header_address_of(destination);
}

/* Returns an address as the source of a lookup of the route back to a host: the kernel accepts each one. */
static __always_inline address_t source_of_way_back(address_t address)
{
	return address;
}

/* Returns the gateway that a lookup found; 0 if the next hop is the destination itself. */
static __always_inline header_address_t gateway_of(const struct bpf_fib_lookup *fib, address_t destination)
{
	return fib->ipv4_dst == header_address_of(destination) ? 0 : fib->ipv4_dst;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV6_CONNTRACK_H
#define WEIR_IPV6_CONNTRACK_H

/* The member of the kernel's union nf_inet_addr that has an IPv6 address. CO-RE relocates its offset to that
 * of the running kernel.
 */
#define CONNTRACK_ADDRESS in6

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
union nf_inet_addr {
	header_address_t CONNTRACK_ADDRESS;
};
#pragma clang attribute pop

#endif

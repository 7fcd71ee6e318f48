/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CHECKSUM_H
#define WEIR_CHECKSUM_H

/* Adds two 32-bit sums of 16-bit words of the Internet checksum (RFC 1071). */
static __always_inline __u32 sum_of(__u32 a, __u32 b)
{
	__u64 sum = (__u64)a + b;

	return (sum >> 32) + (__u32)sum;
}

static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum >> 16) + (sum & 0xffff);
	return (sum >> 16) + (sum & 0xffff);
}

#endif

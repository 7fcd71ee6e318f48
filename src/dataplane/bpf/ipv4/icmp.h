/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The message types of ICMP for IPv4. */
#ifndef WEIR_IPV4_ICMP_H
#define WEIR_IPV4_ICMP_H

/* The protocol of ICMP messages in an IPv4 header. */
#define PROTOCOL_ICMP IPPROTO_ICMP

#define ICMP_ECHO_REPLY 0
#define ICMP_UNREACHABLE 3
#define ICMP_SOURCE_QUENCH 4
#define ICMP_REDIRECT 5
#define ICMP_ECHO_REQUEST 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12

static __always_inline bool is_icmp_error(__u8 type)
{
	return type == ICMP_UNREACHABLE || type == ICMP_SOURCE_QUENCH || type == ICMP_TIME_EXCEEDED ||
	       type == ICMP_PARAMETER_PROBLEM;
}

/* Returns the class of an ICMP type. A query and its reply have the same class, for example echo request
 * and echo reply (RFC 792, RFC 950). Returns 0 for a type that is neither a query nor a reply.
 */
static __always_inline __u8 icmp_query_class(__u8 type)
{
	if (type == ICMP_ECHO_REQUEST || type == ICMP_ECHO_REPLY)
		return 1;
	if (type >= 13 && type <= 18)
		return 2 + ((type - 13) >> 1);
	return 0;
}

static __always_inline bool is_icmp_reply(__u8 type)
{
	return type == ICMP_ECHO_REPLY || type == 14 || type == 16 || type == 18;
}

/* Returns the type of the query that an ICMP reply of this type answers. */
static __always_inline __u32 icmp_query_of(__u8 reply)
{
	return reply == ICMP_ECHO_REPLY ? ICMP_ECHO_REQUEST : reply - 1;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The message types of ICMP for IPv6 (RFC 4443). */
#ifndef WEIR_IPV6_ICMP_H
#define WEIR_IPV6_ICMP_H

/* The protocol of ICMP messages: the next header value that precedes them. */
#define PROTOCOL_ICMP IPPROTO_ICMPV6

#define ICMP_UNREACHABLE 1
#define ICMP_PACKET_TOO_BIG 2
#define ICMP_TIME_EXCEEDED 3
#define ICMP_PARAMETER_PROBLEM 4
#define ICMP_ECHO_REQUEST 128
#define ICMP_ECHO_REPLY 129
#define ICMP_REDIRECT 137
#define ICMP_NODE_QUERY 139
#define ICMP_NODE_REPLY 140

/* Returns whether a message is one of the errors of RFC 4443. Other numbers below 128 have no meaning yet,
 * so a rule decides such a message.
 */
static __always_inline bool is_icmp_error(__u8 type)
{
	return type >= ICMP_UNREACHABLE && type <= ICMP_PARAMETER_PROBLEM;
}

/* Returns the class of an ICMP type. A query and its reply have the same class: echo request and echo reply,
 * and the messages of node information queries (RFC 4620). Returns 0 for a type that is neither a query nor
 * a reply.
 */
static __always_inline __u8 icmp_query_class(__u8 type)
{
	if (type == ICMP_ECHO_REQUEST || type == ICMP_ECHO_REPLY)
		return 1;
	return type == ICMP_NODE_QUERY || type == ICMP_NODE_REPLY ? 2 : 0;
}

static __always_inline bool is_icmp_reply(__u8 type)
{
	return type == ICMP_ECHO_REPLY || type == ICMP_NODE_REPLY;
}

/* Returns the type of the query that an ICMP reply of this type answers. */
static __always_inline __u32 icmp_query_of(__u8 reply)
{
	return reply == ICMP_ECHO_REPLY ? ICMP_ECHO_REQUEST : ICMP_NODE_QUERY;
}

#endif

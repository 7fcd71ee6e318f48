/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The message types of ICMP for IPv6 (RFC 4443). */
#ifndef WEIR_IPV6_ICMP_H
#define WEIR_IPV6_ICMP_H

/* The protocol of ICMP messages: the next header value that precedes them. */
#define PROTOCOL_ICMP IPPROTO_ICMPV6

#define ICMP_ECHO_REQUEST 128
#define ICMP_ECHO_REPLY 129
#define ICMP_NODE_QUERY 139
#define ICMP_NODE_REPLY 140

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

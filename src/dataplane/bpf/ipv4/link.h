/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The messages between the hosts and the routers of a link. */
#ifndef WEIR_IPV4_LINK_H
#define WEIR_IPV4_LINK_H

/* IPv4 has no packets that must pass between a host and its routers whatever the policy: ARP has frames of
 * its own.
 */
static __always_inline bool is_of_link(struct __sk_buff *skb, struct packet *packet)
{
	(void)packet;
	(void)skb;
	return false;
}

/* Returns whether a packet is a message of a router or of a DHCP server to the hosts of its link. Bridge
 * ports do not filter such messages of IPv4.
 */
static __always_inline bool is_of_router(const struct packet *packet)
{
	(void)packet;
	return false;
}

static __always_inline bool may_be_of_router(struct __sk_buff *skb)
{
	(void)skb;
	return false;
}

#endif

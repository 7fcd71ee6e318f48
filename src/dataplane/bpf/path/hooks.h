/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How the hooks handle a packet of the IP family of this object. */
#ifndef WEIR_HOOKS_H
#define WEIR_HOOKS_H

/* Handles an incoming packet by the full path. `fast_packet` is not 0 if the fast path has searched the flow
 * table and found no flow.
 */
static __always_inline enum outcome handle_by_full_path(struct __sk_buff *skb, const struct fast_packet *fast_packet)
{
	struct packet *packet = new_packet(0);
	bool is_left;

	if (!packet)
		return OUTCOME_DROP;
	is_left = is_left_to_bridge(skb);
	if (is_left && !may_be_of_router(skb))
		return pass_unmarked(skb, COUNT_TO_NODE);
	if (is_of_link(skb, packet)) {
		if (is_left)
			return pass_unmarked(skb, COUNT_TO_NODE);
		if (port_of(skb))
			return pass(skb, COUNT_NON_IPV4);
		/* The policy decides a message that the network stack would forward: without the guard (nftables rules of
		 * Weir), it would leave the link.
		 */
		if (settings.classify_all || is_not_forwarded(skb, packet))
			return pass_unmarked(skb, COUNT_TO_NODE);
	}
	if (fast_packet) {
		packet->has_no_flow = true;
		packet->prefetched = fast_packet->prefetched;
	}
	return handle_ip(skb, packet);
}

/* Handles an incoming packet by the fast paths. Returns NOT_ESTABLISHED or OPENS_FLOW if the packet needs
 * the full path; with OPENS_FLOW, `fast_packet` has what the fast paths have found.
 */
static __always_inline enum outcome handle_by_fast_path(struct __sk_buff *skb, struct fast_packet *fast_packet)
{
	enum outcome outcome = pass_established(skb, fast_packet);

	return outcome == OPENS_FLOW ? pass_new_flow(skb, fast_packet) : outcome;
}

/* Handles a packet that leaves by a policed interface and came in by none (`handle_egress`). `local` is true
 * if the node itself sends the packet.
 */
static __always_inline enum outcome handle_ip_egress(struct __sk_buff *skb, bool local)
{
	struct packet *packet;

	if (!local || skb->mark & settings.exempt_bit)
		return follow_foreign(skb, local ? COUNT_FROM_NODE : COUNT_FOREIGN);
	packet = new_packet(0);
	if (!packet)
		return OUTCOME_DROP;
	if (is_of_link(skb, packet))
		return pass_unmarked(skb, COUNT_FROM_NODE);
	packet->outgoing = true;
	return handle_ip(skb, packet);
}

#endif

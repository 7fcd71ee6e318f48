/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_FORWARD_H
#define WEIR_SPLICE_FORWARD_H

/* Sets the next hop of the packet, so that it can be sent without the network stack (next_hop.h). Uses the
 * next hop that the entry in `joins` has stored if it is fresh (`is_fresh`), and otherwise looks up the
 * route.
 */
static __always_inline void find_next_hop(struct __sk_buff *skb, struct packet *packet, struct join *join, __u64 now)
{
	struct way *way = is_fresh(join->hop, now) ? way_of(join->hop) : 0;

	if (way) {
		packet->way = *way;
		return;
	}
	is_not_forwarded(skb, packet);
	join->hop = store_next_hop(&packet->way, now);
}

/* Forwards a packet of a spliced connection (splice.h): the datapath itself translates and forwards its
 * packets. Returns NOT_SPLICED if the packet does not belong to such a connection.
 */
__noinline enum outcome forward_spliced(struct __sk_buff *skb, struct packet *packet)
{
	__u64 now = coarse_ns();
	struct active *in_force;
	__u32 state, length, first = 0;
	struct join *join;
	bool vouched;

	if (!packet || packet->outgoing || packet->fragment != FRAGMENT_NONE)
		return NOT_SPLICED;
	join = join_of(packet);
	if (!join)
		return NOT_SPLICED;
	state = READ_ONCE(join->state);
	if (state == JOIN_QUIET)
		return NOT_SPLICED;
	if (state != JOINED)
		return drop(skb, packet, DROP_NOT_INSPECTED);
	vouched = is_vouched_for(join, now);
	if (join->ifindex != skb->ifindex) {
		if (is_spoofed(skb, packet))
			return drop(skb, packet, DROP_SPOOFED_SOURCE);
		join->ifindex = skb->ifindex;
	}
	if (packet->tcp_flags & TCP_SYN)
		return opens_tcp(packet) ? probe_instead_of_syn(skb, packet, join) : drop(skb, packet, DROP_OUT_OF_STATE);
	/* Translate a RST even if the process that owns the entry has ended: the RST itself ends the
	 * connection for its receiver.
	 */
	if (!vouched && !(packet->tcp_flags & TCP_RST)) {
		length = reset_both(skb, packet, join);
		if (!length)
			return drop(skb, packet, DROP_SERVICE_PLANE_ABSENT);
	} else {
		length = translate(skb, packet, join);
		if (!length)
			return drop(skb, packet, DROP_MALFORMED);
		note_joined(skb, packet, join, length, now);
	}
	in_force = bpf_map_lookup_elem(&active, &first);
	if (!in_force || !is_sent_directly(in_force, now))
		return pass(skb, COUNT_JOINED);
	find_next_hop(skb, packet, join, now);
	pass(skb, COUNT_JOINED);
	/* Here send only a packet of merged segments (GSO) directly. The function `deliver` sends a packet of one
	 * segment directly.
	 */
	return skb->gso_size ? send(skb, &packet->way, skb->gso_size + packet->header + length) : OUTCOME_PASS;
}

/* Returns whether a SYN belongs to a spliced connection that still exists. If the connection has ended,
 * deletes both entries of `joins`, so that a new connection can use the same addresses and ports.
 */
__noinline bool is_spliced(const struct packet *packet)
{
	struct join *join, *other;
	struct join_key key;

	if (!packet)
		return false;
	join = join_of(packet);
	if (!join || join->state == JOIN_QUIET)
		return false;
	other = reverse_join_of(packet);
	if (other && !((join->ends | other->ends) & JOIN_RESET) && !(join->ends & other->ends) &&
	    is_vouched_for(join, coarse_ns()))
		return true;
	key = reverse_key_of(packet);
	bpf_map_delete_elem(&joins, &key);
	key = key_of(packet);
	bpf_map_delete_elem(&joins, &key);
	return false;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FAST_PATH_NEW_FLOW_H
#define WEIR_FAST_PATH_NEW_FLOW_H

/* The fast path for a packet that opens a flow. Opens the flow and passes the packet if the copied routes
 * contain its source and destination, and the first two rule blocks or the default allow or audit it.
 * Otherwise returns OPENS_FLOW, and stores the rule list, verdict word and interface that it has found for
 * the full path. Searches the rule list first, so that the CPU can load the rules while it still waits for
 * the flow table.
 */
static __always_inline enum outcome pass_new_flow(struct __sk_buff *skb, struct fast_packet *fast_packet)
{
	__u32 active_word = fast_packet->prefetched.active_word, list, word;
	struct image image = image_of(slot_of(active_word));
	struct opening opening;
	__u64 keys;

	list = find_list(image, PASS_ADDRESS(fast_packet->source), PASS_ADDRESS(fast_packet->destination), &fast_packet->prefetched.member_changes);
	fast_packet->prefetched.list = list;
	fast_packet->prefetched.word = fast_packet->prefetched.ifindex = 0;
	fast_packet->prefetched.has_asked = false;
	if (!active_word || settings.direct || is_service_address(fast_packet->destination) || is_loopback(fast_packet->source) || is_loopback(fast_packet->destination))
		return OPENS_FLOW;
	if (!settings.classify_all) {
		fast_packet->prefetched.has_asked = true;
		fast_packet->prefetched.ifindex = plain_route(skb, fast_packet->source, fast_packet->destination);
		if (!fast_packet->prefetched.ifindex)
			return OPENS_FLOW;
	}
	keys = (__u64)(fast_packet->ports >> 16) << 32 | (__u32)fast_packet->protocol << 16 | (fast_packet->ports & 0xffff);
	word = first_blocks_word(image, list, address_class(image.slot, fast_packet->destination), keys);
	if (!is_decided(word))
		return OPENS_FLOW;
	fast_packet->prefetched.word = word;
	if ((word & 7) != VERDICT_ALLOW && (word & 7) != VERDICT_AUDIT)
		return OPENS_FLOW;
	if (is_over_share(PASS_ADDRESS(fast_packet->source), 0))
		return OPENS_FLOW;
	opening = (struct opening){
		.key = lookup_key(&fast_packet->flow_lookup),
		.judgement = (__u64)fast_packet->prefetched.active_word << 32 | word,
		.slot = claim_by_tags(&fast_packet->flow_lookup),
		.came_in = skb->ifindex,
		.goes_on = fast_packet->prefetched.ifindex,
		.state = fast_packet->protocol == IPPROTO_TCP ? FLOW_TCP_SYN_SENT : FLOW_UDP_OPENED,
		.flags = FLOW_HALF_OPEN | (fast_packet->from_high ? FLOW_OPENED_BY_HIGH : 0),
		.member_changes = fast_packet->prefetched.member_changes,
	};
	if (opening.slot == NO_SLOT)
		return OPENS_FLOW;
	fill_line(skb, &opening, coarse_ns());
	return pass_verdict(skb, word);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FAST_PATH_NEW_FLOW_H
#define WEIR_FAST_PATH_NEW_FLOW_H

/* The fast path of a packet that opens a flow. It passes a packet that the copied routes forward, if the
 * first rule block or the default allows it. Other packets take the full path, with the results so far.
 * Lines that are probably not in the cache are loaded first, while the flow table is still being fetched.
 */
static __always_inline enum outcome pass_first(struct __sk_buff *skb, struct brief *brief)
{
	__u32 active_word = brief->foreseen.active_word, list, word;
	struct image image = image_of(slot_of(active_word));
	struct opening opening = {};
	__u64 keys;

	list = find_list(image, brief->source, brief->destination);
	brief->foreseen.list = list;
	brief->foreseen.word = brief->foreseen.ifindex = 0;
	brief->foreseen.has_asked = false;
	if (!active_word || settings.direct || is_loopback(brief->source) || is_loopback(brief->destination))
		return OPENS_FLOW;
	if (!settings.judge_all) {
		brief->foreseen.has_asked = true;
		brief->foreseen.ifindex = opening.goes_on = plain_route(skb, brief->source, brief->destination);
		if (!opening.goes_on)
			return OPENS_FLOW;
	}
	keys = (__u64)(brief->ports >> 16) << 32 | (__u32)brief->protocol << 16 | (brief->ports & 0xffff);
	word = near_word(image, list, brief->destination, keys);
	if (!is_decided(word))
		return OPENS_FLOW;
	brief->foreseen.word = word;
	if ((word & 7) != VERDICT_ALLOW && (word & 7) != VERDICT_AUDIT)
		return OPENS_FLOW;
	if (is_over_share(brief->source, 0))
		return OPENS_FLOW;
	opening.slot = claim_seen(&brief->sought);
	if (opening.slot == NO_SLOT)
		return OPENS_FLOW;
	opening.key = sought_key(&brief->sought);
	opening.judged = (__u64)brief->foreseen.active_word << 32 | word;
	opening.came_in = skb->ifindex;
	opening.state = brief->protocol == IPPROTO_TCP ? FLOW_TCP_SYN_SENT : FLOW_UDP_OPENED;
	opening.flags = FLOW_HALF_OPEN | (brief->from_high ? FLOW_OPENED_BY_HIGH : 0);
	fill_line(skb, &opening, coarse_ns());
	return pass_word(skb, word);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_JUDGE_H
#define WEIR_JUDGE_H

/* Returns the verdict word of the flow that the packet belongs to. For a reply, the function swaps source
 * and destination, because rules describe the packets of the side that opened the flow.
 */
static __noinline __u32 judge(const struct packet *packet, __u32 active_word, bool reply)
{
	__u32 base = active_word & 1 ? settings.slot_lines : 0;
	struct packet opening = {};

	if (!packet)
		return 0;
	if (!reply)
		return classify(base, packet->source, packet->destination, leaf_key(packet), packet->source_port);
	opening.protocol = packet->protocol;
	opening.destination_port = packet->source_port;
	if (packet->protocol == IPPROTO_ICMP)
		opening.icmp_type = packet->icmp_type == ICMP_ECHO_REPLY ? ICMP_ECHO_REQUEST : packet->icmp_type - 1;
	return classify(base, packet->destination, packet->source, leaf_key(&opening), packet->destination_port);
}

/* Returns the drop reason for a verdict word, or DROP_NONE if the word lets the packet pass. An audited
 * redirect passes without inspection (D4).
 */
static __always_inline enum drop_reason refusal_of(__u32 word)
{
	switch (word & 7) {
	case VERDICT_ALLOW:
	case VERDICT_AUDIT:
		return DROP_NONE;
	case VERDICT_DENY:
		return DROP_POLICY_DENY;
	case VERDICT_REDIRECT:
		return word & AUDITED ? DROP_NONE : DROP_SERVICE_PLANE_ABSENT;
	default:
		return DROP_PROGRAM_DAMAGED;
	}
}

static __always_inline int pass_word(struct __sk_buff *skb, __u32 word)
{
	return pass(skb, word & 7);
}

static __always_inline void trace(struct __sk_buff *skb, __u32 word)
{
	if (settings.trace_word)
		skb->cb[0] = word;
}

#endif

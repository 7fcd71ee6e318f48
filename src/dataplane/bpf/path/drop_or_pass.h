/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_DROP_OR_PASS_H
#define WEIR_DROP_OR_PASS_H

/* The forward judge, a netfilter program, also calls the functions of this file. There `skb` is not the
 * context of the program, so the verifier requires that the functions check `skb` for 0.
 */
__noinline enum outcome drop(struct __sk_buff *skb, const struct packet *packet, enum drop_reason reason)
{
	if (!skb)
		return OUTCOME_DROP;
	/* Never pass a packet with a loopback address to the predecessor datapath: an older predecessor would let
	 * the packet in.
	 */
	if (settings.hands_over && reason != DROP_LOOPBACK)
		return TO_PREDECESSOR;
	count_packet(COUNT_DROPS + reason, skb);
	report_packet(skb, packet, 0, reason);
	return OUTCOME_DROP;
}

/* Drops a packet that the policy refuses. `judgement` is the active word << 32 | the verdict word that caused
 * the drop.
 */
__noinline enum outcome refuse(struct __sk_buff *skb, const struct packet *packet, __u64 judgement, enum drop_reason reason)
{
	if (!skb)
		return OUTCOME_DROP;
	if (settings.hands_over)
		return TO_PREDECESSOR;
	trace(skb, judgement);
	count_packet(COUNT_DROPS + reason, skb);
	report_packet(skb, packet, judgement, reason);
	return OUTCOME_DROP;
}

/* Passes a packet and opens no flow for it. `judgement` is the active word << 32 | the verdict word of the
 * packet.
 */
__noinline enum outcome pass_alone(struct __sk_buff *skb, const struct packet *packet, __u64 judgement)
{
	if (!skb)
		return OUTCOME_DROP;
	report_packet(skb, packet, judgement, DROP_NONE);
	return pass_verdict(skb, judgement);
}

#endif

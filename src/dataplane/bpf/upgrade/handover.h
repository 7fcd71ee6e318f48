/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_HANDOVER_H
#define WEIR_HANDOVER_H

/* While a datapath takes over from its predecessor, both are on the hooks: this program, loaded with
 * `bridges`, and the predecessor, which it reaches by tail calls. Until a program is in force here, every
 * packet goes to the predecessor. From then on only packets that would be dropped here go there, since the
 * predecessor still has the flows that were not migrated yet. One store in `active` switches all hooks at
 * once. Without `bridges` the verifier removes this code.
 */
static __always_inline bool is_in_force(void)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	return in_force && READ_ONCE(in_force->word);
}

/* Returns if the predecessor had no program on this hook. */
static __always_inline void hand_over_unless_in_force(struct __sk_buff *skb, enum predecessor predecessor)
{
	if (settings.bridges && !is_in_force())
		bpf_tail_call(skb, &predecessors, predecessor);
}

static __always_inline enum outcome hand_over_refused(struct __sk_buff *skb, enum outcome outcome, enum predecessor predecessor)
{
	if (!settings.bridges || outcome != TO_PREDECESSOR)
		return outcome;
	bpf_tail_call(skb, &predecessors, predecessor);
	count_packet(COUNT_DROPS + DROP_NO_POLICY, skb);
	return OUTCOME_DROP;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_HANDOVER_H
#define WEIR_HANDOVER_H

/* While one datapath succeeds another, a bridge stands on the hooks: this program, loaded with `bridges`. Until something
 * is in force here, every packet is handed to the other; from then on those that would be dropped here, since the other
 * still has the flows that were not brought over yet. One store in `active` changes that for all hooks at once.
 * From a program that is no bridge the verifier removes all of this.
 */
static __always_inline bool is_in_force(void)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	return in_force && READ_ONCE(in_force->word);
}

/* Comes back where the other had no program on this hook. */
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

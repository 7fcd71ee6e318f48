/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_HANDOVER_H
#define WEIR_HANDOVER_H

/* Handover: during an upgrade, the BPF programs of this datapath and of its predecessor (the datapath of the
 * previous process) are both in use. This datapath is on the hooks, loaded with the setting `hands_over`, and
 * calls the predecessor by tail calls. Until this datapath has a policy in force, the predecessor handles
 * every packet. After that, the predecessor gets only the packets that this datapath refuses, because the
 * predecessor still has the flows that user space has not migrated yet.
 *
 * One store of the active word in the map `active` switches all hooks together. Without `hands_over`, the
 * verifier removes this code.
 */
static __always_inline bool is_in_force(void)
{
	__u32 first = 0;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	return in_force && READ_ONCE(in_force->word);
}

/* Tail-calls the predecessor until this datapath has a policy in force. Returns only if this datapath has
 * a policy in force, or if the predecessor has no BPF program on this hook.
 */
static __always_inline void hand_over_unless_in_force(struct __sk_buff *skb, enum predecessor predecessor)
{
	if (settings.hands_over && !is_in_force())
		bpf_tail_call(skb, &predecessors, predecessor);
}

static __always_inline enum outcome hand_over_refused(struct __sk_buff *skb, enum outcome outcome, enum predecessor predecessor)
{
	if (!settings.hands_over || outcome != TO_PREDECESSOR)
		return outcome;
	bpf_tail_call(skb, &predecessors, predecessor);
	count_packet(COUNT_DROPS + DROP_NO_POLICY, skb);
	return OUTCOME_DROP;
}

#endif

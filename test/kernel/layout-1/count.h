/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_COUNT_H
#define WEIR_COUNT_H

static __always_inline void count(__u32 index, __u64 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &index);

	if (counter) {
		counter->packets += 1;
		counter->bytes += bytes;
	}
}

/* Counts a packet and drops it. A drop ends the chain of TC programs; after `pass` and `leave`, later TC
 * programs on the hook see the packet too.
 */
static __noinline int drop(struct __sk_buff *skb, enum drop_reason reason)
{
	count(COUNT_DROPS + reason, skb->len);
	return TC_ACT_SHOT;
}

/* Counts a packet and passes it without the mark bit of the guard. The network stack may deliver the
 * packet to the node, but the guard drops the packet if the stack forwards it.
 */
static __noinline int leave(struct __sk_buff *skb, enum counter_index index)
{
	count(index, skb->len);
	return TC_ACT_UNSPEC;
}

static __noinline int pass(struct __sk_buff *skb, enum verdict verdict)
{
	count(verdict == VERDICT_ALLOW ? COUNT_ALLOW : COUNT_AUDIT, skb->len);
	skb->mark |= settings.guard_bit;
	return TC_ACT_UNSPEC;
}

static __always_inline int pass_unjudged(struct __sk_buff *skb)
{
	count(COUNT_NON_IPV4, skb->len);
	skb->mark |= settings.guard_bit;
	return TC_ACT_UNSPEC;
}

#endif

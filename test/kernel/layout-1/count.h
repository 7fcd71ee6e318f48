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

/* Neither verdict ends the chain of programs: others behind this one still see what passes. */
static __noinline int drop(struct __sk_buff *skb, enum drop_reason reason)
{
	count(COUNT_DROPS + reason, skb->len);
	return TC_ACT_SHOT;
}

/* Passes without the guard's mark: the stack may keep the packet, but not forward it. */
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

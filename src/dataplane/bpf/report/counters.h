/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_COUNTERS_H
#define WEIR_COUNTERS_H

#define SECOND_NS 1000000000ULL

static __always_inline __u32 ticks_of(__u64 ns)
{
	return ns >> TICK_SHIFT;
}

/* Counts merged segments (GSO) as the packets that were on the wire. Segments that a virtual machine or a
 * tap device merged have no count yet; then usual header lengths are assumed.
 */
static __always_inline __u32 packets_of(const struct __sk_buff *skb)
{
	__u32 segments = skb->gso_segs, size = skb->gso_size, headers = ETH_HLEN + 20 + 20;

	if (segments)
		return segments;
	return size && skb->len > size + headers ? (skb->len - headers + size - 1) / size : 1;
}

static __always_inline void count_many(__u32 index, __u64 packets, __u64 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &index);

	if (counter) {
		counter->packets += packets;
		counter->bytes += bytes;
	}
}

static __always_inline void count(__u32 index)
{
	count_many(index, 1, 0);
}

static __always_inline void count_packet(__u32 index, const struct __sk_buff *skb)
{
	count_many(index, packets_of(skb), skb->len);
}

/* One instruction in assembly: clang merges two writes into one at a computed address, which the verifier
 * refuses for a context.
 */
static __always_inline void set_priority(struct __sk_buff *skb, __u32 priority)
{
	asm volatile("*(u32 *)(%[skb] + %[offset]) = %[priority]"
		     :
		     : [skb] "r"(skb), [offset] "i"(__builtin_offsetof(struct __sk_buff, priority)),
		       [priority] "r"(priority)
		     : "memory");
}

/* Only a drop ends the chain of programs: later programs on the hook still see packets that pass. This
 * packet passes without the mark of the guard: the stack may deliver it to the node, but must not forward
 * it.
 */
static __always_inline enum outcome leave(struct __sk_buff *skb, enum counter_index index)
{
	count_packet(index, skb);
	if (skb->priority == PRIORITY_PASSED || skb->priority == PRIORITY_REDIRECTED)
		set_priority(skb, 0);
	return OUTCOME_PASS;
}

static __always_inline enum outcome pass(struct __sk_buff *skb, enum counter_index index)
{
	count_packet(index, skb);
	skb->mark |= settings.guard_bit;
	set_priority(skb, PRIORITY_PASSED);
	return OUTCOME_PASS;
}

static __always_inline void trace(struct __sk_buff *skb, __u32 word)
{
	if (settings.trace_word)
		skb->cb[0] = word;
}

static __always_inline enum outcome pass_word(struct __sk_buff *skb, __u32 word)
{
	trace(skb, word);
	return pass(skb, (word & 7) == VERDICT_ALLOW ? COUNT_ALLOW : COUNT_AUDIT);
}

#endif

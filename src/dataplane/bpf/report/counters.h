/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_COUNTERS_H
#define WEIR_COUNTERS_H

#define SECOND_NS 1000000000ULL

static __always_inline __u32 ticks_of(__u64 ns)
{
	return ns >> TICK_SHIFT;
}

/* Returns the number of packets on the wire that `skb` stands for: a GSO packet consists of several segments.
 * A GSO packet from a virtual machine or a tap device has no segment count yet, so the function computes the
 * count from usual header lengths.
 */
static __always_inline __u32 packets_of(const struct __sk_buff *skb)
{
	__u32 segments = skb->gso_segs, size = skb->gso_size, headers = ETH_HLEN + sizeof(ip_header_t) + 20;

	if (segments)
		return segments;
	return size && skb->len > size + headers ? (skb->len - headers + size - 1) / size : 1;
}

/* Returns by how much a 32-bit counter of a flow has grown since the last flush, which stored `folded`. The
 * result is negative if the counter is lower than `folded`. The fast path adds to the counter by a plain
 * store, which can overwrite the atomic addition of another CPU. A migrated flow can also have a counter that
 * was read before a flush, and a `folded` that was read after this flush.
 */
static __always_inline __s64 since_flush(__u32 counter, __u32 folded)
{
	return (__s32)(counter - folded);
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

/* Writes skb->priority by one assembly instruction. From two assignments in C, clang makes one write to a
 * computed address, and the verifier rejects such a write to a context.
 */
static __always_inline void set_priority(struct __sk_buff *skb, __u32 priority)
{
	asm volatile("*(u32 *)(%[skb] + %[offset]) = %[priority]"
		     :
		     : [skb] "r"(skb), [offset] "i"(__builtin_offsetof(struct __sk_buff, priority)),
		       [priority] "r"(priority)
		     : "memory");
}

/* Counts a packet, and passes the packet without the mark bit of the guard (Weir's nftables rules). The
 * network stack may deliver the packet to the node; if the stack forwards the packet, the guard drops it.
 * Later TC programs on the hook still see the packet.
 */
static __always_inline enum outcome pass_unmarked(struct __sk_buff *skb, enum counter_index index)
{
	count_packet(index, skb);
	/* Clear the priority of the outer packet, which a decapsulated packet from a tunnel still has. */
	if ((skb->priority & ~PRIORITY_VARIANTS) == PRIORITY_PASSED)
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

static __always_inline enum outcome pass_verdict(struct __sk_buff *skb, __u32 word)
{
	trace(skb, word);
	return pass(skb, (word & 7) == VERDICT_ALLOW ? COUNT_ALLOW : COUNT_AUDIT);
}

#endif

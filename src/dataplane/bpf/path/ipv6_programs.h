/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV6_PROGRAMS_H
#define WEIR_IPV6_PROGRAMS_H

/* The programs of the object for IPv6. The kernel clears a map of this type when no process has the map open
 * and no pin keeps the map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, IPV6_PROGRAMS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ipv6_programs SEC(".maps");

/* Calls a program of the object for IPv6. Returns only if the map has no such program: drops the packet
 * then.
 */
static __always_inline enum outcome call_ipv6(struct __sk_buff *skb, enum ipv6_program program)
{
	bpf_tail_call(skb, &ipv6_programs, program);
	count_packet(COUNT_DROPS + DROP_IPV6, skb);
	return OUTCOME_DROP;
}

#endif

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The BPF object for IPv6. The programs of weir.bpf.c call its programs for IPv6 packets, if policies apply
 * to IPv6 (the setting `enforces_ipv6`). They have already cleared the mark of an incoming packet.
 */
/* clang-format off */
#define FAMILY_HEADER(name) FAMILY_PATH(ipv6/name)
/* clang-format on */
#define FAMILY_PATH(path) #path
#include "datapath.h"
#include "ipv6/layout.h"

SEC("tc")
int weir_ingress(struct __sk_buff *skb)
{
	struct fast_packet *fast_packet = fast_packet_buffer();
	enum outcome outcome;

	if (!fast_packet)
		return TC_ACT_SHOT;
	outcome = handle_by_fast_path(skb, fast_packet);
	if (outcome == NOT_ESTABLISHED || outcome == OPENS_FLOW) {
		fast_packet->opens_flow = outcome == OPENS_FLOW;
		return call_ipv6(skb, IPV6_FULL_PATH);
	}
	return action_of(hand_over_refused(skb, outcome, PREDECESSOR_INGRESS));
}

/* The full path is a program of its own, because it needs almost all of the 512 bytes of stack. */
SEC("tc")
int weir_full_path(struct __sk_buff *skb)
{
	struct fast_packet *fast_packet = fast_packet_buffer();
	enum outcome outcome;

	if (!fast_packet)
		return TC_ACT_SHOT;
	outcome = handle_by_full_path(skb, fast_packet->opens_flow ? fast_packet : 0);
	return action_of(hand_over_refused(skb, outcome, PREDECESSOR_INGRESS));
}

SEC("tc")
int weir_egress(struct __sk_buff *skb)
{
	__u32 priority = skb->priority;
	enum outcome outcome = handle_ip_egress(skb, skb->ingress_ifindex == 0);

	/* Restore the priority that the sender set, because queueing disciplines classify by the priority. */
	set_priority(skb, priority);
	return action_of(hand_over_refused(skb, outcome, PREDECESSOR_EGRESS));
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "weir.h"
#include "maps.h"
#include "count.h"
#include "classify.h"
#include "parse.h"
#include "route.h"
#include "flow.h"
#include "judge.h"
#include "sweep.h"

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

static __always_inline int refuse(struct __sk_buff *skb, __u32 word, enum drop_reason reason)
{
	trace(skb, word);
	return drop(skb, reason);
}

/* Handles a packet of an existing flow. If another epoch classified the flow, the policy in force
 * classifies the flow again.
 */
static __always_inline int continue_flow(struct __sk_buff *skb, struct flow *flow, const struct place *place,
					 const struct packet *packet, __u32 active_word, __u64 judgement, __u64 now)
{
	__u32 direction = place->from_high != (flow->opened_by_high != 0);
	__u32 word = judgement;

	if (flow->ifindex[direction & 1] != skb->ifindex) {
		if (is_spoofed(skb, packet))
			return drop(skb, DROP_SPOOFED_SOURCE);
		flow->ifindex[direction & 1] = skb->ifindex;
	}
	if (judgement >> 32 != active_word >> 1) {
		enum drop_reason refused;

		word = judge(packet, active_word, direction);
		refused = refusal_of(word);
		if (refused) {
			close_flow(&place->key);
			return refuse(skb, word, refused);
		}
		count(COUNT_FLOWS_REJUDGED, 0);
		WRITE_ONCE(flow->judgement, (__u64)(active_word >> 1) << 32 | word);
	}
	touch_flow(flow, packet, direction, skb->len, now);
	trace(skb, word);
	return pass_word(skb, word);
}

/* Handles a packet that has no flow. */
static __always_inline int begin_flow(struct __sk_buff *skb, const struct place *place, const struct packet *packet,
				      const struct active *in_force, __u32 active_word, __u64 now)
{
	enum drop_reason refused;
	__u32 word;

	if (is_to_node(skb, packet))
		return leave(skb, COUNT_TO_NODE);
	if (is_spoofed(skb, packet))
		return drop(skb, DROP_SPOOFED_SOURCE);
	if (!active_word)
		return drop(skb, DROP_NO_POLICY);
	word = judge(packet, active_word, false);
	/* A TCP packet that is not a SYN and has no flow passes only if its verdict is audited (D4, D18). The
	 * packet then opens no flow.
	 */
	if (packet->protocol == IPPROTO_TCP &&
	    (packet->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN &&
	    now >= READ_ONCE(in_force->pickup_until_ns)) {
		if (word & AUDITED) {
			trace(skb, word);
			return pass_word(skb, word);
		}
		return refuse(skb, word, DROP_OUT_OF_STATE);
	}
	refused = refusal_of(word);
	if (refused)
		return refuse(skb, word, refused);
	/* An ICMP reply without a query is classified by itself and opens no flow. */
	if (place->stateful && !place->icmp_reply) {
		refused = open_flow(skb, place, packet, (__u64)(active_word >> 1) << 32 | word);
		if (refused)
			return refuse(skb, word, refused);
	}
	trace(skb, word);
	return pass_word(skb, word);
}

static __always_inline int police(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct place place = {};
	struct active *in_force;
	enum drop_reason wrong = parse(skb, &packet);
	struct flow *flow;
	__u32 first = 0, active_word;
	__u64 now;

	if (wrong)
		return drop(skb, wrong);
	if (packet.fragment)
		return is_to_node(skb, &packet) ? leave(skb, COUNT_TO_NODE) : drop(skb, DROP_FRAGMENT);
	in_force = bpf_map_lookup_elem(&active, &first);
	if (!in_force)
		return drop(skb, DROP_NO_POLICY);
	active_word = READ_ONCE(in_force->word);
	now = bpf_ktime_get_coarse_ns();
	find_place(&place, &packet);
	flow = place.stateful ? bpf_map_lookup_elem(&flows, &place.key) : 0;
	if (flow) {
		__u64 judgement = READ_ONCE(flow->judgement);
		bool reopened = packet.protocol == IPPROTO_TCP && flow->state == FLOW_CLOSING &&
				(packet.tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;

		asm volatile("" ::: "memory");
		if (same_key(&flow->key, &place.key)) {
			if (!reopened && !is_expired(flow, now))
				return continue_flow(skb, flow, &place, &packet, active_word, judgement, now);
			close_flow(&place.key);
		}
	}
	return begin_flow(skb, &place, &packet, in_force, active_word, now);
}

SEC("tc")
int weir_ingress(struct __sk_buff *skb)
{
	skb->mark &= ~settings.mark_mask;
	if (skb->vlan_present)
		return drop(skb, DROP_VLAN_TAGGED);
	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		return police(skb);
	case bpf_htons(ETH_P_ARP):
		return leave(skb, COUNT_ARP);
	case bpf_htons(ETH_P_8021Q):
	case bpf_htons(ETH_P_8021AD):
	case bpf_htons(ETH_P_QINQ1):
	case bpf_htons(ETH_P_QINQ2):
	case bpf_htons(ETH_P_QINQ3):
		return drop(skb, DROP_VLAN_TAGGED);
	default:
		return settings.pass_non_ipv4 ? pass_unjudged(skb) : drop(skb, DROP_NON_IPV4);
	}
}

char LICENSE[] SEC("license") = "GPL";

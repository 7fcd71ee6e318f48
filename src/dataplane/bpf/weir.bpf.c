// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

#include "ipv4/address.h"
#include "weir.h"
#include "outcome.h"
#include "maps.h"
#include "ipv4/wire_destination.h"
#include "clock.h"
#include "report/counters.h"
#include "upgrade/handover.h"
#include "classify/image_search.h"
#include "ipv4/address_class.h"
#include "ipv4/address_lines.h"
#include "classify/grants.h"
#include "classify/members.h"
#include "classify/rules.h"
#include "ipv4/icmp.h"
#include "parse/headers.h"
#include "ipv4/header.h"
#include "parse/parse.h"
#include "route/bridge_port.h"
#include "ipv4/copied_routes.h"
#include "ipv4/lookup.h"
#include "route/next_hop.h"
#include "ipv4/send.h"
#include "report/rule_hits.h"
#include "classify/drop_reason.h"
#include "report/events.h"
#include "flow/flow_table.h"
#include "flow/flow_share.h"
#include "flow/flush.h"
#include "flow/flow_key.h"
#include "flow/claim_line.h"
#include "flow/tcp_numbers.h"
#include "flow/track_state.h"
#include "flow/open_flow.h"
#include "inspect/sockets.h"
#include "nat/aliases.h"
#include "ipv4/conntrack.h"
#include "nat/translation.h"
#include "ipv4/send_translated.h"
#include "path/fast_path.h"
#include "parse/fragments.h"
#include "classify/classify_packet.h"
#include "path/drop_or_pass.h"
#include "path/ipv6.h"
#include "inspect/divert_dns.h"
#include "inspect/splice.h"
#include "inspect/splice_translate.h"
#include "inspect/splice_challenge.h"
#include "inspect/splice_reset.h"
#include "inspect/splice_forward.h"
#include "inspect/inspect.h"
#include "ipv4/quoted.h"
#include "path/icmp_errors.h"
#include "inspect/own_output.h"
#include "inspect/splice_start.h"
#include "path/found_flow.h"
#include "path/full_path.h"
#include "path/fast_path_new_flow.h"
#include "nat/forward_judge.h"
#include "flow/sweep.h"
#include "revert.h"
#include "upgrade/migrate_flow.h"
#include "classify/bench.h"
#include "ipv4/proof_packet.h"
#include "classify/prove.h"
#include "ipv4/layout.h"

/* Handles an incoming packet by the full path. `fast_packet` is not 0 if the fast path has searched the flow
 * table and found no flow.
 */
static __always_inline enum outcome handle_ip_ingress(struct __sk_buff *skb, const struct fast_packet *fast_packet)
{
	struct packet *packet = new_packet(0);

	if (!packet)
		return OUTCOME_DROP;
	if (is_left_to_bridge(skb))
		return pass_unmarked(skb, COUNT_TO_NODE);
	if (fast_packet) {
		packet->has_no_flow = true;
		packet->prefetched = fast_packet->prefetched;
	}
	return handle_ip(skb, packet);
}

static __always_inline enum outcome handle_ip_egress(struct __sk_buff *skb)
{
	struct packet *packet = new_packet(0);

	if (!packet)
		return OUTCOME_DROP;
	packet->outgoing = true;
	return handle_ip(skb, packet);
}

static __always_inline enum outcome handle_ingress(struct __sk_buff *skb)
{
	struct fast_packet *fast_packet;
	enum outcome outcome;

	note_reinjected(skb);
	skb->mark &= ~settings.mark_mask;
	if (skb->vlan_present)
		return drop(skb, 0, DROP_VLAN_TAGGED);
	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		fast_packet = fast_packet_buffer();
		if (!fast_packet)
			return OUTCOME_DROP;
		outcome = pass_established(skb, fast_packet);
		if (outcome != OPENS_FLOW)
			return outcome == NOT_ESTABLISHED ? handle_ip_ingress(skb, 0) : outcome;
		outcome = pass_new_flow(skb, fast_packet);
		return outcome == OPENS_FLOW ? handle_ip_ingress(skb, fast_packet) : outcome;
	case bpf_htons(ETH_P_ARP):
		return port_of(skb) ? pass(skb, COUNT_ARP) : pass_unmarked(skb, COUNT_ARP);
	case bpf_htons(ETH_P_IPV6):
		return handle_ipv6(skb, false);
	case bpf_htons(ETH_P_8021Q):
	case bpf_htons(ETH_P_8021AD):
	case bpf_htons(ETH_P_QINQ1):
	case bpf_htons(ETH_P_QINQ2):
	case bpf_htons(ETH_P_QINQ3):
		return drop(skb, 0, DROP_VLAN_TAGGED);
	default:
		outcome = handle_other_frame(skb);
		return outcome == OUTCOME_DROP ? drop(skb, 0, DROP_NON_IPV4) : outcome;
	}
}

/* Handles a packet that leaves by a policed interface (D17). A forwarded packet with the mark bit of the
 * guard (Weir's nftables rules) passes, because the ingress hook has already handled it. Otherwise the node
 * itself sent the packet, or the packet came in by an interface without policy.
 */
static __always_inline enum outcome handle_egress(struct __sk_buff *skb)
{
	bool local = skb->ingress_ifindex == 0;

	/* Ignore the mark bit of the guard on a packet that the node itself sends. The ingress hook does not mark
	 * such packets, so conntrack has copied the mark from another packet.
	 */
	if (!local && (skb->mark & settings.guard_bit || has_passed_judge(skb)))
		return OUTCOME_PASS;
	if (local && is_inspecting() && skb->protocol == bpf_htons(ETH_P_IP) && !may_send(skb)) {
		pass_unmarked(skb, COUNT_FROM_NODE);
		return OUTCOME_DROP;
	}
	if (local && !settings.police_local)
		return pass_unmarked(skb, COUNT_FROM_NODE);
	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		if (local && !(skb->mark & settings.exempt_bit))
			return handle_ip_egress(skb);
		return follow_foreign(skb, local ? COUNT_FROM_NODE : COUNT_FOREIGN);
	case bpf_htons(ETH_P_ARP):
		return pass_unmarked(skb, COUNT_ARP);
	case bpf_htons(ETH_P_IPV6):
		return local ? handle_ipv6(skb, true) : pass_unmarked(skb, COUNT_FOREIGN);
	default:
		if (!local)
			return pass_unmarked(skb, COUNT_FOREIGN);
		return settings.pass_non_ipv4 ? pass_unmarked(skb, COUNT_NON_IPV4) : drop(skb, 0, DROP_NON_IPV4);
	}
}

SEC("tc")
int weir_ingress(struct __sk_buff *skb)
{
	hand_over_unless_in_force(skb, PREDECESSOR_INGRESS);
	return action_of(hand_over_refused(skb, handle_ingress(skb), PREDECESSOR_INGRESS));
}

SEC("tc")
int weir_egress(struct __sk_buff *skb)
{
	__u32 priority = skb->priority;
	enum outcome outcome;

	hand_over_unless_in_force(skb, PREDECESSOR_EGRESS);
	if (settings.hands_over && !is_in_force())
		return action_of(OUTCOME_PASS);
	outcome = handle_egress(skb);
	/* Restore the priority that the sender set, because queueing disciplines classify by the priority. */
	set_priority(skb, priority);
	return action_of(hand_over_refused(skb, outcome, PREDECESSOR_EGRESS));
}

char LICENSE[] SEC("license") = "GPL";

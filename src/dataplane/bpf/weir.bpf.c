// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The BPF object for IPv4. Its programs are on the hooks, and handle the frames of all protocols. */
/* clang-format off */
#define FAMILY_HEADER(name) FAMILY_PATH(ipv4/name)
/* clang-format on */
#define FAMILY_PATH(path) #path
#include "datapath.h"
#include "path/ipv6.h"
#include "inspect/splice_start.h"
#include "nat/forward_judge.h"
#include "revert.h"
#include "upgrade/migrate_flow.h"
#include "classify/bench.h"
#include "ipv4/layout.h"

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
		outcome = handle_by_fast_path(skb, fast_packet);
		if (outcome == NOT_ESTABLISHED)
			return handle_by_full_path(skb, 0);
		return outcome == OPENS_FLOW ? handle_by_full_path(skb, fast_packet) : outcome;
	case bpf_htons(ETH_P_ARP):
		return port_of(skb) ? pass(skb, COUNT_ARP) : pass_unmarked(skb, COUNT_ARP);
	case bpf_htons(ETH_P_IPV6):
		return settings.enforces_ipv6 ? call_ipv6(skb, IPV6_INGRESS) : handle_ipv6(skb, false);
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

	/* Ignore the mark bit of the guard (nftables rules of Weir) on a packet that the node itself sends. The
	 * ingress hook does not mark such packets, so conntrack has copied the mark from another packet.
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
		return handle_ip_egress(skb, local);
	case bpf_htons(ETH_P_ARP):
		return pass_unmarked(skb, COUNT_ARP);
	case bpf_htons(ETH_P_IPV6):
		if (settings.enforces_ipv6)
			return call_ipv6(skb, IPV6_EGRESS);
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

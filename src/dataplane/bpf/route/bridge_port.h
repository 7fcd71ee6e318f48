/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_BRIDGE_PORT_H
#define WEIR_BRIDGE_PORT_H

/* Policed bridge ports. The ingress hook of a port sees each frame before the bridge does. The bridge then
 * switches the frame to other ports, or delivers it to the node, or both. The hook of the port classifies the
 * frame, with one exception: if the bridge device itself has a hook, that hook classifies the frames that the
 * bridge delivers to the node.
 *
 * A wrong or old entry of the map `ports` does not let more frames pass: the guard (Weir's nftables rules in
 * the family `bridge`) lets the bridge switch only marked frames.
 */

/* Values from linux/if_packet.h: whether the destination MAC address is that of the interface, the broadcast
 * address, or a multicast address.
 */
#define PACKET_HOST 0
#define PACKET_BROADCAST 1
#define PACKET_MULTICAST 2

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

/* Returns the bridge port that has received the packet; 0 if the interface is not a policed bridge port. */
static __always_inline const struct port *port_of(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;

	return bpf_map_lookup_elem(&ports, &ifindex);
}

/* Returns the interface by which the network stack would see the packet: the bridge of a port, or the
 * interface itself. The barrier prevents a read at a computed address of the context, which the verifier
 * rejects.
 */
static __always_inline __u32 routed_interface(struct __sk_buff *skb, const struct port *port)
{
	__u32 ifindex = skb->ifindex;

	asm volatile("" : "+r"(ifindex));
	return port ? port->bridge : ifindex;
}

static __always_inline bool is_to_group(const struct __sk_buff *skb)
{
	return skb->pkt_type == PACKET_BROADCAST || skb->pkt_type == PACKET_MULTICAST;
}

/* Returns whether the bridge switches the frame to another port. A frame to a group (broadcast or multicast)
 * is both switched and delivered to the node. A frame to the MAC address of the bridge or of the port is only
 * delivered to the node.
 */
static __always_inline bool is_switched_by(struct __sk_buff *skb, const struct port *port)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	const __u16 *to = data, *bridge = (const __u16 *)port->mac;

	if (is_to_group(skb))
		return true;
	if (skb->pkt_type == PACKET_HOST)
		return false;
	return data + ETH_HLEN > data_end || to[0] != bridge[0] || to[1] != bridge[1] || to[2] != bridge[2];
}

__noinline bool is_switched(struct __sk_buff *skb)
{
	const struct port *port = port_of(skb);

	return port && is_switched_by(skb, port);
}

/* Returns whether a frame comes from a bridge port behind which no router may be. */
static __always_inline bool is_rogue_router(struct __sk_buff *skb)
{
	const struct port *port = port_of(skb);

	return port && !port->has_router;
}

/* Returns whether the hook of the bridge device classifies this frame. */
__noinline bool is_left_to_bridge(struct __sk_buff *skb)
{
	const struct port *port = port_of(skb);

	return port && port->policed && !is_switched_by(skb, port);
}

/* Handles a denied packet. A bridge would switch a frame to a group (broadcast or multicast), and also
 * deliver it to the node, where no policy applies. So for such a frame of a bridge port, sends the frame only
 * to the bridge device. Drops all other packets.
 */
__noinline enum outcome deny_to_others(struct __sk_buff *skb)
{
	const struct port *port = port_of(skb);

	if (settings.police_local || !port || !is_to_group(skb))
		return OUTCOME_DROP;
	return bpf_redirect(port->bridge, BPF_F_INGRESS);
}

/* Returns whether `source` (host byte order) is an address of the bridge. */
static __always_inline bool is_own_address(const struct port *port, address_t source)
{
	bool own = false;

#pragma unroll
	for (__u32 i = 0; i < PORT_ADDRESSES; i++)
		own |= same_address(port->PORT_OWN_ADDRESSES[i], source);
	return own;
}

/* Handles a frame that is neither IPv4, IPv6 nor ARP. Spanning tree frames pass: without them, two parallel
 * paths would become a loop. The bridge itself does not forward frames to the other reserved groups (IEEE
 * 802.1Q, 8.6.3), so they reach the node.
 */
__noinline enum outcome handle_other_frame(struct __sk_buff *skb)
{
	__u16 to[3] = {}, last;

	if (settings.pass_non_ipv4)
		return pass(skb, COUNT_NON_IPV4);
	if (!port_of(skb) || bpf_skb_load_bytes(skb, 0, to, sizeof(to)))
		return OUTCOME_DROP;
	last = bpf_ntohs(to[2]);
	if (to[0] != bpf_htons(0x0180) || to[1] != bpf_htons(0xc200) || last > 0x0f)
		return OUTCOME_DROP;
	return last == 0 && skb->protocol == bpf_htons(ETH_P_802_2) ? pass(skb, COUNT_NON_IPV4) : pass_unmarked(skb, COUNT_TO_NODE);
}

#endif

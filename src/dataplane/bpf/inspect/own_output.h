/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_OWN_OUTPUT_H
#define WEIR_OWN_OUTPUT_H

/* Returns whether a packet from the service plane (TLS and HTTP inspection) to a server has no conntrack
 * entry of its own although the node translates addresses. Such a packet has the entry of the client's
 * connection, so the kernel would not translate its source. The guard (Weir's nftables rules) clears
 * `nat_bit` of packets that have their own entry.
 */
static __always_inline bool lacks_own_entry(const struct __sk_buff *skb)
{
	__u32 first = 0, both = settings.exempt_bit | settings.nat_bit;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	return in_force && is_translating(in_force) && (skb->mark & both) == both;
}

/* Returns whether the node may send this packet; if not, the caller drops it. The node may not send:
 * - a packet to a server that has no conntrack entry of its own (`lacks_own_entry`), and
 * - a packet of a spliced connection, which the datapath forwards. The node would acknowledge data that no
 *   process reads, or reset a connection that its TCP stack no longer has.
 *
 * In the state JOIN_QUIET the connection will soon be spliced, and the service plane still relays it. The
 * node may send the packet; this function sets its receive window to 0, so that the peer stops sending.
 *
 * If the packet is an ICMP error of the node about a spliced connection, translates the quoted sequence
 * number.
 */
__noinline bool may_send(struct __sk_buff *skb)
{
	struct packet *packet = new_packet(0), *quoted;
	struct join *join;
	__u16 window, none = 0;
	__u32 at;

	if (!packet)
		return false;
	packet->outgoing = true;
	if (parse(skb, packet))
		return true;
	if (packet->protocol == PROTOCOL_ICMP && is_icmp_error(packet->icmp_type)) {
		quoted = new_packet(1);
		if (quoted && read_quoted(skb, packet, quoted) && same_address(quoted->source, packet->destination))
			is_about_spliced(skb, packet, quoted);
	}
	if (packet->protocol != IPPROTO_TCP)
		return true;
	if (lacks_own_entry(skb))
		return false;
	join = join_of(packet);
	if (!join || !is_vouched_for(join, coarse_ns()))
		return true;
	if (READ_ONCE(join->state) != JOIN_QUIET)
		return false;
	at = ETH_HLEN + packet->header;
	if (bpf_skb_load_bytes(skb, at + TCP_WINDOW, &window, sizeof(window)))
		return true;
	if (!bpf_l4_csum_replace(skb, at + TCP_CHECKSUM, window, none, sizeof(none)))
		bpf_skb_store_bytes(skb, at + TCP_WINDOW, &none, sizeof(none), 0);
	return true;
}

#endif

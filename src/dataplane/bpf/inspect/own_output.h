/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_OWN_OUTPUT_H
#define WEIR_OWN_OUTPUT_H

/* Filter of the node's own output: whether it may send this packet of a connection that is being spliced.
 * Until the connection is at rest, a window of 0 is advertised, so that the peers send no more data. After
 * that, the node must send nothing: it would acknowledge data that no process reads, or reset a connection
 * that its stack no longer has. ICMP errors about a spliced connection are translated.
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
	if (packet->protocol == IPPROTO_ICMP && is_icmp_error(packet->icmp_type)) {
		quoted = new_packet(1);
		if (quoted && read_quoted(skb, packet, quoted) && quoted->source == packet->destination)
			is_about_joined(skb, packet, quoted);
	}
	if (packet->protocol != IPPROTO_TCP)
		return true;
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

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

/* Sets `packet->fragment` to FRAGMENT_FIRST or FRAGMENT_LATER. Returns DROP_MALFORMED if no datagram can have
 * this fragment.
 */
static __always_inline enum drop_reason place_fragment(struct packet *packet)
{
	__u32 from = (packet->fragment_field & IP_FRAGMENT_OFFSET) * 8;

	if (from + packet->payload + packet->header > IP_BYTES_MAX || packet->payload == 0)
		return DROP_MALFORMED;
	if (packet->fragment_field & IP_MORE_FRAGMENTS && packet->payload & 7)
		return DROP_MALFORMED;
	packet->fragment = from == 0 ? FRAGMENT_FIRST : FRAGMENT_LATER;
	return DROP_NONE;
}

/* Reads the headers of a packet: `parse_ip` reads the IP header, and this function the header after it.
 * Returns the reason to drop the packet, or DROP_NONE. `at.payload` is a field of its own, because clang
 * otherwise computes `at.total - at.header` a second time.
 */
static __always_inline enum drop_reason parse(struct __sk_buff *skb, struct packet *packet)
{
	struct ip_payload at;
	enum drop_reason too_short = DROP_MALFORMED, wrong = parse_ip(skb, packet, &at);
	__u32 need;
	__u8 *l4;

	if (wrong)
		return wrong;
	l4 = at.start;
	if (packet->fragment_field) {
		if (place_fragment(packet))
			return DROP_MALFORMED;
		too_short = DROP_FRAGMENT_TINY;
	}
	need = packet->fragment == FRAGMENT_LATER ? 0 : header_bytes(packet->protocol);
	if (need) {
		if (at.header + need > at.total)
			return too_short;
		if ((void *)(l4 + 8) > at.data_end)
			return DROP_MALFORMED;
		read_ports(packet, l4);
		if (packet->protocol == IPPROTO_TCP) {
			__u32 offset;

			if ((void *)(l4 + 20) > at.data_end)
				return DROP_MALFORMED;
			offset = (l4[12] >> 4) * 4;
			if (offset < 20)
				return DROP_MALFORMED;
			if (at.total < at.header + offset)
				return too_short;
			read_tcp(packet, l4, skb->len > IP_BYTES_MAX + ETH_HLEN ? skb->len - ETH_HLEN - at.header : at.payload);
			if (!is_tcp_combination(packet->tcp_flags))
				return DROP_TCP_FLAGS;
		} else if (packet->protocol == IPPROTO_UDP && !packet->fragment && !skb->gso_size) {
			__u32 length = l4[4] << 8 | l4[5];

			if (length < 8 || at.header + length > at.total)
				return DROP_MALFORMED;
		}
	}
	return check_ip_options(skb, at.header);
}

#endif

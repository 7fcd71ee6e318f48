/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_RESET_H
#define WEIR_SPLICE_RESET_H

/* Writes the changed TCP header up to the checksum field into the packet, and updates the checksum. */
__noinline bool write_header(struct __sk_buff *skb, __u32 at, struct headers *header)
{
	__s64 difference;

	if (!header)
		return false;
	difference = bpf_csum_diff((void *)header->before, TCP_HEADER_MAX, (void *)header->after, TCP_HEADER_MAX, 0);
	return difference >= 0 && !bpf_l4_csum_replace(skb, at + TCP_CHECKSUM, 0, difference, 0) &&
	       !bpf_skb_store_bytes(skb, at + TCP_SOURCE_PORT, header->after, TCP_CHECKSUM, 0);
}

static __always_inline void make_reset(struct headers *header, __u32 sequence, __u32 acknowledgment, __u8 flags)
{
	__u32 number = bpf_htonl(sequence);
	__u16 none = 0;

	__builtin_memcpy(header->after + TCP_SEQUENCE, &number, sizeof(number));
	number = bpf_htonl(acknowledgment);
	__builtin_memcpy(header->after + TCP_ACKNOWLEDGMENT, &number, sizeof(number));
	header->after[TCP_FLAGS + 1] = flags;
	__builtin_memcpy(header->after + TCP_WINDOW, &none, sizeof(none));
}

/* Swaps the source and destination of a frame: MAC addresses and IP addresses. The swap leaves the IP and
 * TCP checksums correct.
 */
__noinline bool turn_frame(struct __sk_buff *skb)
{
	__u8 stations[2][ETH_ALEN];
	header_address_t addresses[2];

	return !bpf_skb_load_bytes(skb, 0, stations, sizeof(stations)) &&
	       !bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(ip_header_t, saddr), addresses, sizeof(addresses)) &&
	       !bpf_skb_store_bytes(skb, 0, stations[1], ETH_ALEN, 0) &&
	       !bpf_skb_store_bytes(skb, ETH_ALEN, stations[0], ETH_ALEN, 0) &&
	       !bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(ip_header_t, saddr), &addresses[1], sizeof(addresses[1]), 0) &&
	       !bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(ip_header_t, daddr), &addresses[0], sizeof(addresses[0]), 0);
}

/* Resets both sides of a spliced connection whose process has ended. A clone of the packet returns to its
 * sender as a RST. The sequence number of the clone is the acknowledgment number of the packet, so the sender
 * accepts this RST. The packet itself becomes a RST to the other side, with the sequence number after the
 * last byte that the datapath forwarded to that side.
 *
 * If a segment was lost before, the other side answers this RST with a challenge ACK (RFC 5961, 3.2). That
 * ACK contains the number that the other side expects, so this function can reset both sides when it handles
 * the ACK. Both RST packets keep their payload, so the function updates the TCP checksum and does not compute
 * a new one. Returns the length of the TCP header in bytes; 0 on failure.
 */
__noinline __u32 reset_both(struct __sk_buff *skb, const struct packet *packet, struct join *join)
{
	__u32 first = 0, at, ports, length, acknowledged;
	struct headers *header = bpf_map_lookup_elem(&headers, &first);

	if (!header || !packet || !join || !(packet->tcp_flags & TCP_ACK))
		return 0;
	at = ETH_HLEN + packet->header;
	__builtin_memset(header, 0, sizeof(*header));
	if (bpf_skb_load_bytes(skb, at, header->before, TCP_OPTIONS))
		return 0;
	length = (header->before[TCP_FLAGS] >> 4) * 4;
	__builtin_memcpy(&acknowledged, header->before + TCP_ACKNOWLEDGMENT, sizeof(acknowledged));
	acknowledged = bpf_ntohl(acknowledged);
	join->acknowledged = acknowledged;
	join->ends |= JOIN_RESET;

	__builtin_memcpy(header->after, header->before, sizeof(header->after));
	__builtin_memcpy(&ports, header->before + TCP_SOURCE_PORT, sizeof(ports));
	ports = ports << 16 | ports >> 16;
	__builtin_memcpy(header->after + TCP_SOURCE_PORT, &ports, sizeof(ports));
	make_reset(header, acknowledged, 0, TCP_RST);
	if (!write_header(skb, at, header) || !turn_frame(skb))
		return 0;
	/* Set the mark bit of the guard (Weir's nftables rules), so that the egress hook does not classify the
	 * RST to the sender.
	 */
	skb->mark |= settings.guard_bit;
	bpf_clone_redirect(skb, skb->ifindex, 0);

	__builtin_memcpy(header->before, header->after, sizeof(header->before));
	ports = ports << 16 | ports >> 16;
	__builtin_memcpy(header->after + TCP_SOURCE_PORT, &ports, sizeof(ports));
	make_reset(header, join->next + join->sequence, acknowledged + join->acknowledgment, TCP_RST | TCP_ACK);
	return turn_frame(skb) && write_header(skb, at, header) ? length : 0;
}

#endif

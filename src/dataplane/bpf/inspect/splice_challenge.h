/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_CHALLENGE_H
#define WEIR_SPLICE_CHALLENGE_H

/* Handles a SYN on a spliced connection (RFC 9293, 3.8.4). The SYN must not pass, because it would open a
 * connection that the service plane does not inspect. The function turns the SYN into an ACK with an old
 * sequence number, which the receiver must answer.
 *
 * A receiver that still has the connection answers with an ACK, and the sender of the SYN replies to that ACK
 * with a RST. A receiver that no longer has the connection answers with a RST. Both cases end the spliced
 * connection, so the next SYN can open a new connection.
 */
__noinline enum outcome probe_instead_of_syn(struct __sk_buff *skb, const struct packet *packet, const struct join *join)
{
	__u32 first = 0, at, number;
	struct headers *header = bpf_map_lookup_elem(&headers, &first);
	struct join *other;
	__s64 difference;

	if (!header || !packet || !join)
		return OUTCOME_DROP;
	other = reverse_join_of(packet);
	at = ETH_HLEN + packet->header;
	__builtin_memset(header, 0, sizeof(*header));
	if (!other || bpf_skb_load_bytes(skb, at, header->before, TCP_OPTIONS))
		return OUTCOME_DROP;
	__builtin_memcpy(header->after, header->before, sizeof(header->after));
	number = bpf_htonl(other->acknowledged - 1);
	__builtin_memcpy(header->after + TCP_SEQUENCE, &number, sizeof(number));
	number = bpf_htonl(join->acknowledged + join->acknowledgment);
	__builtin_memcpy(header->after + TCP_ACKNOWLEDGMENT, &number, sizeof(number));
	header->after[TCP_FLAGS + 1] = TCP_ACK;
	difference = bpf_csum_diff((void *)header->before, TCP_HEADER_MAX, (void *)header->after, TCP_HEADER_MAX, 0);
	if (difference < 0 || bpf_l4_csum_replace(skb, at + TCP_CHECKSUM, 0, difference, 0) ||
	    bpf_skb_store_bytes(skb, at + TCP_SEQUENCE, header->after + TCP_SEQUENCE, TCP_CHECKSUM - TCP_SEQUENCE, 0))
		return OUTCOME_DROP;
	return pass(skb, COUNT_JOINED);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_TCP_NUMBERS_H
#define WEIR_TCP_NUMBERS_H

/* A RST counts only if its sequence number is the last acknowledgment number of its receiver (RFC 5961, 3.2).
 * A host that forges packets of one side does not see those of the other side, and cannot send any. So the
 * acknowledgment numbers of the receiver decide, and not the numbers that the sender of the RST has used.
 *
 * A flow has room for the lower 16 bits only. So after one RST that does not fit, no RST of this side counts
 * until the receiver has sent another packet. A forger has one guess in 65,534 between two packets of the
 * receiver.
 */
#define NO_NUMBER 0 /* not known: each RST counts */
#define NO_RESET 1  /* a RST did not fit: no RST counts until the receiver sends another number */

/* Returns the bits of a sequence or acknowledgment number that a flow stores. */
static __always_inline __u16 number_of(__u32 number)
{
	__u16 low = number;

	return low > NO_RESET ? low : NO_RESET + 1;
}

/* Returns whether a packet is a RST that does not fit its flow. Such a RST must neither change the flow nor
 * pass. `side`: 0 for a packet of the opener, 1 for a reply.
 */
static __always_inline bool is_stray_reset(struct flow *flow, const struct packet *packet, __u32 side)
{
	__u16 expected;

	if (packet->protocol != IPPROTO_TCP || !(packet->tcp_flags & TCP_RST))
		return false;
	side = !side;
	expected = READ_ONCE(flow->acknowledged[side & 1]);
	if (expected == NO_NUMBER || expected == number_of(packet->sequence))
		return false;
	/* Another flow may use the cache line by now. Its next packet stores a number. */
	WRITE_ONCE(flow->acknowledged[side & 1], NO_RESET);
	return true;
}

#endif

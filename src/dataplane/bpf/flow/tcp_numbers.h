/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_TCP_NUMBERS_H
#define WEIR_TCP_NUMBERS_H

/* Decides which RST and FIN packets change the state of a flow. A RST counts only if its sequence number is
 * the last acknowledgment number of its receiver (RFC 5961, 3.2). A FIN counts only once its receiver
 * acknowledges it. A host that forges packets of one side neither sees nor can send the packets of the other
 * side. So the acknowledgment numbers of the receiver decide, and not the sequence numbers of the sender.
 *
 * A flow has room for the lower 15 bits of such a number only. So after one RST with a wrong number, the
 * datapath accepts no RST from the same side until the receiver has sent another packet. A forger has one
 * guess in 32,766 between two packets of the receiver.
 *
 * The 16 bits of a side contain its last acknowledgment number, or, with FIN_PENDING, the number by which
 * this side will acknowledge a FIN. While a FIN is pending, no RST of the other side counts. The first such
 * RST is dropped, and the FIN is no longer pending. Two CPUs can write these 16 bits at once, and then lose a
 * FIN. The flow then ends by the FIN of the other side, or by its time-out.
 */
#define NO_NUMBER 0 /* the acknowledgment number is not known: each RST counts */
#define NO_RESET 1  /* a RST had a wrong number: no RST counts until its receiver sends another packet */
#define FIN_PENDING 0x8000

/* Returns the part of a TCP sequence or acknowledgment number that the flow table stores. */
static __always_inline __u16 number_of(__u32 number)
{
	__u16 low = number & ~FIN_PENDING;

	return low > NO_RESET ? low : NO_RESET + 1;
}

/* Stores the acknowledgment number of a packet. Returns true if the packet acknowledges a pending FIN of the
 * other side, which counts from now on. `side`: 0 for a packet of the opener, 1 for a reply.
 */
static __always_inline bool acknowledge(struct flow *flow, __u32 side, __u16 number)
{
	__u16 kept = READ_ONCE(flow->tcp_numbers[side & 1]);

	if (kept & FIN_PENDING && kept != (number | FIN_PENDING))
		return false;
	WRITE_ONCE(flow->tcp_numbers[side & 1], number);
	return kept & FIN_PENDING;
}

/* Stores that one side has sent a FIN. `next`: the sequence number after the FIN. */
static __always_inline void await_acknowledgment(struct flow *flow, __u32 side, __u32 next)
{
	WRITE_ONCE(flow->tcp_numbers[!side], FIN_PENDING | number_of(next));
}

/* Returns whether a packet is a RST with a wrong sequence number for its flow. Such a RST must neither change
 * the flow nor pass. `side`: 0 for a packet of the opener, 1 for a reply.
 */
static __always_inline bool is_stray_reset(struct flow *flow, const struct packet *packet, __u32 side)
{
	__u16 expected;

	if (packet->protocol != IPPROTO_TCP || !(packet->tcp_flags & TCP_RST))
		return false;
	side = !side;
	expected = READ_ONCE(flow->tcp_numbers[side & 1]);
	if (expected == NO_NUMBER || expected == number_of(packet->sequence))
		return false;
	/* Harmless if the cache line has another flow by now: the next packet of that flow stores a new number. */
	WRITE_ONCE(flow->tcp_numbers[side & 1], NO_RESET);
	return true;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_TRANSLATE_H
#define WEIR_SPLICE_TRANSLATE_H

/* Adds `what` to the 32-bit number at offset `at` of the translated TCP header. */
static __always_inline void add_to(struct headers *header, __u32 at, __u32 what)
{
	__u32 number;

	if (at > TCP_HEADER_MAX - sizeof(number))
		return;
	__builtin_memcpy(&number, header->after + at, sizeof(number));
	number = bpf_htonl(bpf_ntohl(number) + what);
	__builtin_memcpy(header->after + at, &number, sizeof(number));
}

struct walk {
	__u32 at;
	__u32 acknowledgment;
	__u32 time;
	__u32 echo;
};

static long translate_option(__u32 index, struct walk *walk)
{
	__u32 first = 0, at = walk->at, length, kind;
	struct headers *header = bpf_map_lookup_elem(&headers, &first);

	if (!header || at >= header->length || at > TCP_HEADER_MAX - TCP_OPTIONS - 2)
		return 1;
	kind = header->before[TCP_OPTIONS + at];
	if (kind == OPTION_END)
		return 1;
	length = kind == OPTION_NOP ? 1 : header->before[TCP_OPTIONS + at + 1];
	if ((kind != OPTION_NOP && length < 2) || at + length > header->length)
		return 1;
	if (kind == TCP_OPTION_TIMESTAMPS && length == 10) {
		add_to(header, TCP_OPTIONS + at + 2, walk->time);
		add_to(header, TCP_OPTIONS + at + 6, walk->echo);
	} else if (kind == TCP_OPTION_SACK) {
		for (__u32 edge = 0; edge < SACK_EDGES; edge++)
			if (2 + edge * 4 + 4 <= length)
				add_to(header, TCP_OPTIONS + at + 2 + edge * 4, walk->acknowledgment);
	}
	walk->at = at + length;
	return 0;
}

static __always_inline __u16 translated_window(__u16 window, __s32 shift)
{
	__u32 wide = window;

	/* Do not round a window above 0 down to 0: a window of 0 would stop the peer's data. */
	if (shift < 0)
		return wide >> (-shift & 15) ?: !!wide;
	wide <<= shift & 15;
	return wide > 0xffff ? 0xffff : wide;
}

/* Translates the sequence, acknowledgment and time stamp numbers of a packet to those of the other TCP
 * connection, and converts the window. Returns the length of the TCP header in bytes; 0 on failure.
 */
__noinline __u32 translate(struct __sk_buff *skb, const struct packet *packet, const struct join *join)
{
	__u32 first = 0, at, length, bytes, last;
	struct headers *header = bpf_map_lookup_elem(&headers, &first);
	struct walk walk = {};
	__s64 difference;
	__u16 window;

	if (!header || !packet || !join)
		return 0;
	at = ETH_HLEN + packet->header;
	__builtin_memset(header, 0, sizeof(*header));
	if (bpf_skb_load_bytes(skb, at, header->before, TCP_OPTIONS))
		return 0;
	length = (header->before[TCP_FLAGS] >> 4) * 4;
	if (length < TCP_OPTIONS || length > TCP_HEADER_MAX)
		return 0;
	bytes = length - TCP_OPTIONS;
	/* The barrier makes clang use the register that the bounds check has tested. Otherwise the verifier
	 * does not derive the bound of `bytes`.
	 */
	asm volatile("" : "+r"(bytes));
	if (bytes > OPTIONS_MAX)
		return 0;
	/* Check `bytes` - 1 < OPTIONS_MAX instead of `bytes` != 0: from a comparison with 0, the verifier of
	 * Linux 6.1 derives no bound.
	 */
	last = bytes - 1;
	asm volatile("" : "+r"(last));
	if (last < OPTIONS_MAX && bpf_skb_load_bytes(skb, at + TCP_OPTIONS, header->before + TCP_OPTIONS, last + 1))
		return 0;
	__builtin_memcpy(header->after, header->before, sizeof(header->after));
	header->length = bytes;
	add_to(header, TCP_SEQUENCE, join->sequence);
	if (packet->tcp_flags & TCP_ACK)
		add_to(header, TCP_ACKNOWLEDGMENT, join->acknowledgment);
	__builtin_memcpy(&window, header->before + TCP_WINDOW, sizeof(window));
	window = bpf_htons(translated_window(bpf_ntohs(window), join->window_shift));
	__builtin_memcpy(header->after + TCP_WINDOW, &window, sizeof(window));
	if (bytes == 12 && *(__u32 *)(header->before + TCP_OPTIONS) == bpf_htonl(USUAL_TIMESTAMPS)) {
		add_to(header, TCP_OPTIONS + 4, join->time);
		add_to(header, TCP_OPTIONS + 8, join->echo);
	} else if (bytes) {
		walk.acknowledgment = join->acknowledgment;
		walk.time = join->time;
		walk.echo = join->echo;
		bpf_loop(OPTIONS_MAX, translate_option, &walk, 0);
	}
	difference = bpf_csum_diff((void *)header->before, TCP_HEADER_MAX, (void *)header->after, TCP_HEADER_MAX, 0);
	if (difference < 0 || bpf_l4_csum_replace(skb, at + TCP_CHECKSUM, 0, difference, 0))
		return 0;
	/* Write only the bytes from the sequence number up to the checksum field: `bpf_l4_csum_replace` has
	 * already written the checksum.
	 */
	if (bpf_skb_store_bytes(skb, at + TCP_SEQUENCE, header->after + TCP_SEQUENCE, TCP_CHECKSUM - TCP_SEQUENCE, 0))
		return 0;
	last = bytes - 1;
	asm volatile("" : "+r"(last));
	if (last < OPTIONS_MAX && bpf_skb_store_bytes(skb, at + TCP_OPTIONS, header->after + TCP_OPTIONS, last + 1, 0))
		return 0;
	return length;
}

static __always_inline __u32 number_at(const struct headers *header, __u32 at)
{
	__u32 number;

	__builtin_memcpy(&number, header->before + at, sizeof(number));
	return bpf_ntohl(number);
}

/* Returns whether the receiver accepts this RST. The sequence number of the RST must be the next sequence
 * number of the RST's sender, or the number that the receiver acknowledged last.
 */
static __always_inline bool is_reset(const struct packet *packet, const struct join *join, __u32 sequence)
{
	struct join *other = reverse_join_of(packet);

	return sequence == join->next || (other && sequence + join->sequence == other->acknowledged);
}

/* Records a forwarded packet in the entry of its direction: sequence numbers, time, and FIN or RST. User
 * space derives from these fields whether the connection has ended.
 */
static __always_inline void note_joined(struct __sk_buff *skb, const struct packet *packet, struct join *join, __u32 length,
					__u64 now)
{
	__u32 first = 0, sent, sequence, next;
	struct headers *header = bpf_map_lookup_elem(&headers, &first);

	if (!header)
		return;
	join->last_seen = ticks_of(now);
	sequence = number_at(header, TCP_SEQUENCE);
	if (packet->tcp_flags & TCP_RST) {
		if (is_reset(packet, join, sequence))
			join->ends |= JOIN_RESET;
		return;
	}
	sent = skb->gso_size ? skb->len - ETH_HLEN - packet->header : packet->payload;
	next = sequence + sent - length + !!(packet->tcp_flags & TCP_FIN);
	if (packet->tcp_flags & TCP_ACK)
		join->acknowledged = number_at(header, TCP_ACKNOWLEDGMENT);
	/* Record a FIN only if no data before the FIN is missing and the FIN is not an old duplicate. Otherwise a
	 * FIN with a forged sequence number could mark the direction as ended.
	 */
	if (packet->tcp_flags & TCP_FIN && (__s32)(sequence - join->next) <= 0 && (__s32)(next - join->next) >= 0)
		join->ends |= JOIN_ENDED;
	if ((__s32)(next - join->next) > 0)
		join->next = next;
}

#endif

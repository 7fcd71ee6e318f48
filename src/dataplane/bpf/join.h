/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_JOIN_H
#define WEIR_JOIN_H

/* The service plane ends two connections of TCP for each that it inspects. Once one is decided by its metadata, and both are
 * at rest for a moment, it leaves them: their packets are forwarded as any others, with the numbers of one connection
 * translated to those of the other (joining.h makes them one). User space has the life of an entry in its hands; here
 * nothing is carried for a process that is gone: its connections are reset on both sides.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, JOINS);
	__type(key, struct join_key);
	__type(value, struct join);
} joins SEC(".maps");

/* Until when each of those that join vouches for what it joined, on the monotonic clock. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, JOINERS);
	__type(key, __u32);
	__type(value, __u64);
} joiners SEC(".maps");

#define TCP_SOURCE_PORT 0
#define TCP_SEQUENCE 4 /* offsets in the header */
#define TCP_ACKNOWLEDGMENT 8
#define TCP_FLAGS 12
#define TCP_WINDOW 14
#define TCP_CHECKSUM 16
#define TCP_OPTIONS 20
#define TCP_HEADER_MAX 60
#define TCP_OPTION_SACK 5
#define TCP_OPTION_TIMESTAMPS 8
#define USUAL_TIMESTAMPS 0x0101080a /* two NOPs, the kind and the length */
#define SACK_EDGES 8

/* A header of TCP as it came and as it goes on. */
struct headers {
	__u8 before[64];
	__u8 after[64];
	__u32 length; /* of its options */
	__u32 reserved;
};

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headers);
} headers SEC(".maps");

static __always_inline struct join_key key_of(const struct packet *packet)
{
	return (struct join_key){ packet->source, packet->destination, packet->source_port, packet->destination_port };
}

/* Of the other direction. */
static __always_inline struct join_key key_back(const struct packet *packet)
{
	return (struct join_key){ packet->destination, packet->source, packet->destination_port, packet->source_port };
}

static __always_inline struct join *join_of(const struct packet *packet)
{
	struct join_key key = key_of(packet);

	return bpf_map_lookup_elem(&joins, &key);
}

static __always_inline struct join *answers_to(const struct packet *packet)
{
	struct join_key key = key_back(packet);

	return bpf_map_lookup_elem(&joins, &key);
}

static __always_inline bool is_vouched_for(const struct join *join, __u64 now)
{
	__u32 joiner = join->joiner;
	__u64 *until = bpf_map_lookup_elem(&joiners, &joiner);

	return until && now < READ_ONCE(*until);
}

/* Adds to a number of the header that goes on. */
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

	/* What is little is not nothing. */
	if (shift < 0)
		return wide >> (-shift & 15) ?: !!wide;
	wide <<= shift & 15;
	return wide > 0xffff ? 0xffff : wide;
}

/* Gives the packet the numbers of the other connection. Answers the bytes of its TCP header; 0 where it cannot be. */
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
	/* The verifier must see the bounds of the very number that is passed on. */
	asm volatile("" : "+r"(bytes));
	if (bytes > OPTIONS_MAX)
		return 0;
	/* Not whether there are any: of that Linux 6.1 learns no bound. */
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
	/* The sum of both is the packet's as it was: what stands for the checksum is not written over. */
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

/* Whether the receiver takes this for an end: by the number that it waits for, or the one that the sender has come to. */
static __always_inline bool is_reset(const struct packet *packet, const struct join *join, __u32 sequence)
{
	struct join *other = answers_to(packet);

	return sequence == join->next || (other && sequence + join->sequence == other->acknowledged);
}

/* Keeps what user space wants to know of a packet that was translated. */
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
	/* A FIN that is behind all that was seen, or was seen. */
	if (packet->tcp_flags & TCP_FIN && (__s32)(sequence - join->next) <= 0 && (__s32)(next - join->next) >= 0)
		join->ends |= JOIN_ENDED;
	if ((__s32)(next - join->next) > 0)
		join->next = next;
}

/* Makes a SYN in a connection that stands what asks the other side whether it does (RFC 9293, 3.8.4): one that stands answers,
 * and whoever sent the SYN resets it then; one that does not is reset at once. The next SYN finds it ended. No SYN goes
 * through: what it opens nobody would have read.
 */
__noinline enum outcome ask_instead(struct __sk_buff *skb, const struct packet *packet, const struct join *join)
{
	__u32 first = 0, at, number;
	struct headers *header = bpf_map_lookup_elem(&headers, &first);
	struct join *other;
	__s64 difference;

	if (!header || !packet || !join)
		return OUTCOME_DROP;
	other = answers_to(packet);
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

/* Writes what of the header stands before the checksum, and keeps that right. */
static __always_inline bool write_header(struct __sk_buff *skb, __u32 at, struct headers *header)
{
	__s64 difference = bpf_csum_diff((void *)header->before, TCP_HEADER_MAX, (void *)header->after, TCP_HEADER_MAX, 0);

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

/* Swaps the stations and the addresses of a frame, which no checksum sees. */
static __always_inline bool turn_frame(struct __sk_buff *skb)
{
	__u8 stations[2][ETH_ALEN];
	__u32 addresses[2];

	return !bpf_skb_load_bytes(skb, 0, stations, sizeof(stations)) &&
	       !bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, saddr), addresses, sizeof(addresses)) &&
	       !bpf_skb_store_bytes(skb, 0, stations[1], ETH_ALEN, 0) &&
	       !bpf_skb_store_bytes(skb, ETH_ALEN, stations[0], ETH_ALEN, 0) &&
	       !bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, saddr), &addresses[1], sizeof(addresses[1]), 0) &&
	       !bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, daddr), &addresses[0], sizeof(addresses[0]), 0);
}

/* Ends a connection whose process is gone. A copy of the packet goes back as a reset of its sender, by the number that the
 * packet acknowledges, which the sender takes; the packet itself becomes a reset of the other side, by the number that comes
 * next. If a segment was lost before, the other side asks about that reset (RFC 5961, 3.2), and its question is answered here
 * as any other packet. Both keep their payload, so that no checksum must be made anew. Returns the bytes of the TCP header; 0
 * where it cannot be.
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
	/* Not judged a second time where it leaves. */
	skb->mark |= settings.guard_bit;
	bpf_clone_redirect(skb, skb->ifindex, 0);

	__builtin_memcpy(header->before, header->after, sizeof(header->before));
	ports = ports << 16 | ports >> 16;
	__builtin_memcpy(header->after + TCP_SOURCE_PORT, &ports, sizeof(ports));
	make_reset(header, join->next + join->sequence, acknowledged + join->acknowledgment, TCP_RST | TCP_ACK);
	return turn_frame(skb) && write_header(skb, at, header) ? length : 0;
}

/* Where it goes, where that is asked for here (route.h). */
static __always_inline void find_way(struct __sk_buff *skb, struct packet *packet, struct join *join, __u64 now)
{
	struct way *way = is_fresh(join->hop, now) ? way_of(join->hop) : 0;

	if (way) {
		packet->way = *way;
		return;
	}
	is_to_node(skb, packet);
	join->hop = keep_way(&packet->way, now);
}

/* Forwards a packet of a connection that was joined. NOT_JOINED: it is of none. */
__noinline enum outcome carry_joined(struct __sk_buff *skb, struct packet *packet)
{
	__u64 now = coarse_ns();
	struct active *in_force;
	__u32 state, length, first = 0;
	struct join *join;
	bool vouched;

	if (!packet || packet->outgoing || packet->fragment != FRAGMENT_NONE)
		return NOT_JOINED;
	join = join_of(packet);
	if (!join)
		return NOT_JOINED;
	state = READ_ONCE(join->state);
	if (state == JOIN_QUIET)
		return NOT_JOINED;
	if (state != JOINED)
		return drop(skb, packet, DROP_NOT_INSPECTED);
	vouched = is_vouched_for(join, now);
	if (join->ifindex != skb->ifindex) {
		if (is_spoofed(skb, packet))
			return drop(skb, packet, DROP_SPOOFED_SOURCE);
		join->ifindex = skb->ifindex;
	}
	if (packet->tcp_flags & TCP_SYN)
		return opens_tcp(packet) ? ask_instead(skb, packet, join) : drop(skb, packet, DROP_OUT_OF_STATE);
	/* A reset ends it by itself. */
	if (!vouched && !(packet->tcp_flags & TCP_RST)) {
		length = reset_both(skb, packet, join);
		if (!length)
			return drop(skb, packet, DROP_SERVICE_PLANE_ABSENT);
	} else {
		length = translate(skb, packet, join);
		if (!length)
			return drop(skb, packet, DROP_MALFORMED);
		note_joined(skb, packet, join, length, now);
	}
	in_force = bpf_map_lookup_elem(&active, &first);
	if (!in_force || !is_sent_at_once(in_force, now))
		return pass(skb, COUNT_JOINED);
	find_way(skb, packet, join, now);
	pass(skb, COUNT_JOINED);
	/* What has one segment is sent by `deliver`. */
	return skb->gso_size ? send(skb, &packet->way, skb->gso_size + packet->header + length) : OUTCOME_PASS;
}

/* Whether a SYN is in a connection that stands. Makes room for one by the addresses and ports of another that has ended. */
__noinline bool is_joined(const struct packet *packet)
{
	struct join *join, *other;
	struct join_key key;

	if (!packet)
		return false;
	join = join_of(packet);
	if (!join || join->state == JOIN_QUIET)
		return false;
	other = answers_to(packet);
	if (other && !((join->ends | other->ends) & JOIN_RESET) && !(join->ends & other->ends) &&
	    is_vouched_for(join, coarse_ns()))
		return true;
	key = key_back(packet);
	bpf_map_delete_elem(&joins, &key);
	key = key_of(packet);
	bpf_map_delete_elem(&joins, &key);
	return false;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#define SECOND_NS 1000000000ULL
#define ICMP_ECHO_REPLY 0
#define ICMP_ECHO_REQUEST 8

/* The flow key of a packet, and its direction. `stateful` is false if the packet neither opens a flow nor
 * belongs to a flow.
 */
struct place {
	struct flow_key key;
	bool stateful;
	bool from_high;
	bool icmp_reply;
};

static __always_inline __u64 timeout_ns(__u8 protocol, __u8 state)
{
	if (protocol == IPPROTO_TCP)
		return (state == FLOW_REPLIED ? 7200 : state == FLOW_CLOSING ? 10 : 30) * SECOND_NS;
	if (protocol == IPPROTO_UDP || protocol == IPPROTO_UDPLITE)
		return (state == FLOW_REPLIED ? 180 : 30) * SECOND_NS;
	return (protocol == IPPROTO_ICMP ? 30 : 600) * SECOND_NS;
}

/* Returns whether a flow is idle for longer than its time-out. Compares as signed numbers, because another
 * CPU may have stored a `last_seen` that is later than `now`.
 */
static __always_inline bool is_expired(const struct flow *flow, __u64 now)
{
	return (__s64)(now - flow->last_seen_ns) > (__s64)timeout_ns(flow->key.protocol, flow->state);
}

/* Returns the class of an ICMP type. A query and its reply have the same class (RFC 792, RFC 950). Returns
 * 0 for a type that is neither a query nor a reply.
 */
static __always_inline __u8 icmp_query_class(__u8 type)
{
	if (type == ICMP_ECHO_REQUEST || type == ICMP_ECHO_REPLY)
		return 1;
	if (type >= 13 && type <= 18)
		return 2 + ((type - 13) >> 1);
	return 0;
}

static __always_inline bool is_icmp_reply(__u8 type)
{
	return type == ICMP_ECHO_REPLY || type == 14 || type == 16 || type == 18;
}

/* Computes the flow key of a packet. An ICMP packet with a code other than 0 is not stateful: a flow was
 * classified for code 0, and rules may treat other codes differently.
 */
static __always_inline void find_place(struct place *place, const struct packet *packet)
{
	__u16 source_port = packet->source_port, destination_port = packet->destination_port;
	__u8 query = 0;

	place->stateful = true;
	if (packet->protocol == IPPROTO_ICMP) {
		query = icmp_query_class(packet->icmp_type);
		place->stateful = query && packet->icmp_code == 0;
		place->icmp_reply = is_icmp_reply(packet->icmp_type);
		source_port = destination_port = packet->icmp_id;
	}
	place->from_high = packet->source > packet->destination ||
			   (packet->source == packet->destination && source_port > destination_port);
	place->key.low_address = place->from_high ? packet->destination : packet->source;
	place->key.high_address = place->from_high ? packet->source : packet->destination;
	place->key.low_port = place->from_high ? destination_port : source_port;
	place->key.high_port = place->from_high ? source_port : destination_port;
	place->key.protocol = packet->protocol;
	if (query)
		place->key.kind = query << 1 | (place->from_high != place->icmp_reply);
}

static __always_inline bool same_key(const struct flow_key *a, const struct flow_key *b)
{
	const __u64 *left = (const __u64 *)a, *right = (const __u64 *)b;

	return left[0] == right[0] && left[1] == right[1];
}

static __always_inline void close_flow(const struct flow_key *key)
{
	if (bpf_map_delete_elem(&flows, key) == 0)
		count(COUNT_FLOWS_CLOSED, 0);
}

/* Updates the state, the counters and the time of a flow by a packet. `direction` is 0 for a packet from
 * the side that opened the flow, and 1 for a reply.
 */
static __always_inline void touch_flow(struct flow *flow, const struct packet *packet, __u32 direction, __u32 bytes,
				       __u64 now)
{
	__u32 side = direction & 1;

	flow->last_seen_ns = now;
	flow->packets[side] += 1;
	flow->bytes[side] += bytes;
	if (side && flow->state == FLOW_UNREPLIED)
		flow->state = FLOW_REPLIED;
	if (packet->protocol != IPPROTO_TCP)
		return;
	if (packet->tcp_flags & TCP_FIN)
		flow->fins |= 1 << side;
	if (packet->tcp_flags & TCP_RST || flow->fins == 3)
		flow->state = FLOW_CLOSING;
}

/* Opens a flow for a packet. Returns DROP_NONE, or the reason to drop the packet. If two CPUs open the
 * same flow at the same time, both packets pass.
 */
static __noinline enum drop_reason open_flow(struct __sk_buff *skb, const struct place *place,
					     const struct packet *packet, __u64 judgement)
{
	struct flow flow = {};
	long failed;

	if (!place || !packet)
		return DROP_MALFORMED;
	flow.key = place->key;
	flow.judgement = judgement;
	flow.last_seen_ns = flow.opened_ns = bpf_ktime_get_coarse_ns();
	flow.packets[0] = 1;
	flow.bytes[0] = skb->len;
	flow.ifindex[0] = skb->ifindex;
	flow.opened_by_high = place->from_high;
	/* A TCP flow that starts in the middle of a connection gets the long time-out of a flow with replies,
	 * because earlier replies were not seen.
	 */
	flow.state = packet->protocol == IPPROTO_TCP && !(packet->tcp_flags & TCP_SYN) ? FLOW_REPLIED : FLOW_UNREPLIED;
	if (packet->protocol == IPPROTO_TCP && packet->tcp_flags & TCP_RST)
		flow.state = FLOW_CLOSING;
	failed = bpf_map_update_elem(&flows, &flow.key, &flow, BPF_NOEXIST);
	if (failed == 0)
		count(COUNT_FLOWS_OPENED, 0);
	return failed == 0 || failed == -17 /* EEXIST: another CPU has opened the same flow */ ? DROP_NONE : DROP_FLOW_TABLE_FULL;
}

#endif

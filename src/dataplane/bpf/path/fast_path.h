/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FAST_PATH_H
#define WEIR_FAST_PATH_H

/* The fast path for packets in the middle of an established flow. If `pass_established` returns
 * NOT_ESTABLISHED, the packet needs the full path (full_path.h).
 */

/* The fields of a packet that the fast paths read, in host byte order. */
struct fast_packet {
	struct flow_lookup flow_lookup;
	address_t source;
	address_t destination;
	__u32 ports; /* source port << 16 | destination port */
	__u8 protocol;
	__u8 from_high;
	bool opens_flow;    /* the fast paths have found that the packet opens a flow */
	bool is_translated; /* `flow_lookup` and `from_high` are those after DNAT */
	__u8 alias;         /* a value of enum alias_search; `translated` is valid only with ALIAS_FOUND */
	struct translated translated;
	struct prefetched prefetched;
};

/* Per-CPU buffer for struct fast_packet: on the BPF stack, this struct would leave too little stack for the
 * functions that the fast path calls.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fast_packet);
} fast_packets SEC(".maps");

static __always_inline struct fast_packet *fast_packet_buffer(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&fast_packets, &first);
}

#define TCP_SPECIAL (TCP_SYN | TCP_RST | TCP_ACK)

/* Bit mask of the flow states that the fast path handles. */
#define ESTABLISHED_STATES                                                               \
	(1 << FLOW_TCP_ESTABLISHED | 1 << FLOW_TCP_HALF_CLOSED | 1 << FLOW_TCP_CLOSING | \
	 1 << FLOW_UDP_REPLIED)

/* If a fresh alias (nat/aliases.h) exists for the packet, replaces the flow key and the direction by those
 * after DNAT. Returns the result in memory, so that the verifier checks the code after a call only once.
 */
__noinline int use_alias(struct fast_packet *fast_packet)
{
	address_t destination;
	__u32 ports;

	if (!fast_packet)
		return 0;
	fast_packet->alias = find_alias(&fast_packet->flow_lookup, fast_packet->from_high, coarse_ns(), &fast_packet->translated);
	if (fast_packet->alias != ALIAS_FOUND)
		return 0;
	destination = fast_packet->translated.destination;
	ports = (fast_packet->ports & 0xffff0000) | (fast_packet->translated.ports & 0xffff);
	if (same_address(destination, fast_packet->destination) && ports == fast_packet->ports)
		return 0;
	fast_packet->from_high =
		set_key(&fast_packet->flow_lookup, fast_packet->source, destination, ports, fast_packet->protocol);
	fast_packet->is_translated = true;
	return 0;
}

/* Passes a packet in the middle of an established flow. Returns NOT_ESTABLISHED if the packet needs the
 * full path, and OPENS_FLOW for a SYN or a UDP packet without a flow.
 */
static __always_inline enum outcome pass_established(struct __sk_buff *skb, struct fast_packet *fast_packet)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	ip_header_t *ip = data + ETH_HLEN;
	__u32 total, length, side, now, first = 0, hop = 0, ports, vital, bytes;
	address_t source, destination;
	__u16 kept, acknowledged = NO_NUMBER;
	bool from_high, at_once, opens = false, ends = false, translated, sends = false;
	struct flow_lookup *flow_lookup = &fast_packet->flow_lookup;
	struct active *in_force;
	enum outcome outcome;
	struct flow *flow;
	__u64 judgement, now_ns;
	__u8 *l4 = (__u8 *)(ip + 1);

	if ((void *)(l4 + 8) > data_end || !is_plain_ip(ip))
		return NOT_ESTABLISHED;
	total = ip_bytes(ip);
	if (is_ip_fragment(ip) || total + ETH_HLEN > skb->len)
		return NOT_ESTABLISHED;
	if (protocol_of(ip) == IPPROTO_TCP) {
		if ((void *)(l4 + 20) > data_end)
			return NOT_ESTABLISHED;
		opens = (l4[13] & (TCP_SPECIAL | TCP_FIN)) == TCP_SYN;
		if (!opens && (l4[13] & TCP_SPECIAL) != TCP_ACK)
			return NOT_ESTABLISHED;
		ends = l4[13] & TCP_FIN;
		length = (l4[12] >> 4) * 4;
		if (length < 20 || sizeof(*ip) + length > total)
			return NOT_ESTABLISHED;
		length += sizeof(*ip);
		acknowledged = number_of(bpf_ntohs(*(__u16 *)(l4 + 10)));
	} else if (protocol_of(ip) == IPPROTO_UDP) {
		length = l4[4] << 8 | l4[5];
		if (length < 8 || sizeof(*ip) + length > total)
			return NOT_ESTABLISHED;
		length = sizeof(*ip) + 8;
	} else {
		return NOT_ESTABLISHED;
	}
	if (settings.divert_dns && *(__u16 *)(l4 + 2) == bpf_htons(DNS_PORT))
		return NOT_ESTABLISHED;
	source = address_of_header(ip->saddr);
	destination = address_of_header(ip->daddr);
	ports = bpf_ntohl(*(__u32 *)l4);
	from_high = set_key(flow_lookup, source, destination, ports, protocol_of(ip));
	fast_packet->source = source;
	fast_packet->destination = destination;
	fast_packet->ports = ports;
	fast_packet->protocol = protocol_of(ip);
	fast_packet->from_high = from_high;
	in_force = bpf_map_lookup_elem(&active, &first);
	if (!in_force)
		return NOT_ESTABLISHED;
	fast_packet->prefetched.active_word = READ_ONCE(in_force->word);
	fast_packet->is_translated = false;
	if (is_translating(in_force)) {
		sends = is_sent_translated(in_force, coarse_ns());
		if (sends || may_have_alias(destination))
			use_alias(fast_packet);
	}
	from_high = READ_ONCE(fast_packet->from_high) & 1;
	flow = find_likely(flow_lookup);
	translated = READ_ONCE(fast_packet->is_translated);
	if (!flow)
		return !translated && (opens || protocol_of(ip) == IPPROTO_UDP) ? OPENS_FLOW : NOT_ESTABLISHED;
	if (opens)
		return NOT_ESTABLISHED;
	judgement = READ_ONCE(flow->judgement);
	if (!judgement || judgement >> 32 != fast_packet->prefetched.active_word)
		return NOT_ESTABLISHED;
	vital = READ_ONCE(*(__u32 *)&flow->state);
	side = (from_high ^ vital >> 8) & FLOW_OPENED_BY_HIGH;
	/* The fast path also passes packets of the opener in a half-open UDP flow. Packets of other half-open
	 * flows need the full path, because these packets can change the flow's state.
	 */
	if (vital >> 8 & FLOW_HALF_OPEN ? (__u8)vital != FLOW_UDP_OPENED || side : !(ESTABLISHED_STATES >> (vital & (FLOW_STATES - 1)) & 1))
		return NOT_ESTABLISHED;
	now_ns = coarse_ns();
	now = ticks_of(now_ns);
	bytes = flow->bytes[side];
	if (flow->ifindex[side] != skb->ifindex || is_expired(flow, now) || is_flush_due(bytes, skb->len))
		return NOT_ESTABLISHED;
	/* The full path handles a FIN, its acknowledgment, data after a FIN, and a half-closed flow whose FIN the
	 * receiver has not acknowledged yet.
	 */
	kept = READ_ONCE(flow->tcp_numbers[side]);
	if (ends || kept == (acknowledged | FIN_PENDING) || (vital >> 8 & FLOW_FIN << side && total > length) ||
	    ((__u8)vital == FLOW_TCP_HALF_CLOSED && !(vital >> 8 & BOTH_FINS)))
		return NOT_ESTABLISHED;
	at_once = !sends && !translated && is_sent_directly(in_force, now_ns);
	/* The network stack handles FINs and their acknowledgments, so that conntrack notices the end of a
	 * connection.
	 */
	if (sends && is_established(vital)) {
		__u8 alias = READ_ONCE(fast_packet->alias);

		if (alias == NO_ALIAS)
			return NOT_ESTABLISHED;
		at_once = alias == ALIAS_FOUND && READ_ONCE(fast_packet->translated.is_sent);
	}
	if (at_once) {
		hop = READ_ONCE(flow->hops);
		if (!are_fresh(hop, now_ns))
			return NOT_ESTABLISHED;
		hop = hop_of(hop, side);
		if (!hop)
			return NOT_ESTABLISHED;
	}
	asm volatile("" ::: "memory");
	if (!has_key_of(flow, flow_lookup))
		return NOT_ESTABLISHED;
	if (!(kept & FIN_PENDING))
		flow->tcp_numbers[side] = acknowledged;
	flow->last_seen = now;
	flow->packets[side] += packets_of(skb);
	flow->bytes[side] += skb->len;
	if (at_once) {
		__u32 segment = skb->gso_size ? skb->gso_size + length : skb->len - ETH_HLEN;

		pass_verdict(skb, judgement);
		if (!sends)
			return send(skb, way_of(hop), segment);
		outcome = send_translated(skb, way_of(hop), &fast_packet->translated);
		return outcome == OUTCOME_PASS && translated ? set_translated(skb) : outcome;
	}
	pass_verdict(skb, judgement);
	return translated ? set_translated(skb) : OUTCOME_PASS;
}

#endif

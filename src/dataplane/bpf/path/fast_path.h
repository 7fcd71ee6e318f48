/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FAST_PATH_H
#define WEIR_FAST_PATH_H

/* The fast path of a packet in the middle of an established flow. NOT_BUSY: the packet needs the full path.
 */

/* A packet as the fast paths read it. Host byte order. */
struct brief {
	struct sought sought;
	__u32 source;
	__u32 destination;
	__u32 ports; /* source << 16 | destination */
	__u8 protocol;
	bool from_high;
	struct foreseen foreseen;
};

/* Not on the stack: the functions that are called afterwards need it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct brief);
} briefs SEC(".maps");

static __always_inline struct brief *brief_of_packet(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&briefs, &first);
}

#define TCP_SPECIAL (TCP_SYN | TCP_RST | TCP_ACK)

/* States that a packet in the middle of a flow does not change; a FIN changes one of them into another. */
#define BUSY_STATES                                                                      \
	(1 << FLOW_TCP_ESTABLISHED | 1 << FLOW_TCP_HALF_CLOSED | 1 << FLOW_TCP_CLOSING | \
	 1 << FLOW_UDP_REPLIED)

/* Passes a packet in the middle of an established flow. */
static __always_inline enum outcome pass_busy(struct __sk_buff *skb, struct brief *brief)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 total, length, side, now, first = 0, hop = 0, source, destination, ports, vital, bytes;
	bool from_high, at_once, opens = false, ends = false;
	struct sought *sought = &brief->sought;
	struct active *in_force;
	struct flow *flow;
	__u64 judgement, now_ns;
	__u8 *l4 = (__u8 *)(ip + 1);

	if ((void *)(l4 + 8) > data_end || *(__u8 *)ip != 0x45)
		return NOT_BUSY;
	total = bpf_ntohs(ip->tot_len);
	if (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET) || total + ETH_HLEN > skb->len)
		return NOT_BUSY;
	if (ip->protocol == IPPROTO_TCP) {
		if ((void *)(l4 + 20) > data_end)
			return NOT_BUSY;
		opens = (l4[13] & (TCP_SPECIAL | TCP_FIN)) == TCP_SYN;
		if (!opens && (l4[13] & TCP_SPECIAL) != TCP_ACK)
			return NOT_BUSY;
		ends = l4[13] & TCP_FIN;
		length = (l4[12] >> 4) * 4;
		if (length < 20 || sizeof(*ip) + length > total)
			return NOT_BUSY;
		length += sizeof(*ip);
	} else if (ip->protocol == IPPROTO_UDP) {
		length = l4[4] << 8 | l4[5];
		if (length < 8 || sizeof(*ip) + length > total)
			return NOT_BUSY;
		length = sizeof(*ip) + 8;
	} else {
		return NOT_BUSY;
	}
	if (settings.divert_dns && *(__u16 *)(l4 + 2) == bpf_htons(DNS_PORT))
		return NOT_BUSY;
	source = bpf_ntohl(ip->saddr);
	destination = bpf_ntohl(ip->daddr);
	ports = bpf_ntohl(*(__u32 *)l4);
	from_high = source > destination || (source == destination && ports >> 16 > (ports & 0xffff));
	/* The layout of struct flow_key. */
	sought->addresses = from_high ? (__u64)source << 32 | destination : (__u64)destination << 32 | source;
	sought->rest = (from_high ? ports : ports << 16 | ports >> 16) | (__u64)ip->protocol << 32 |
		       (__u64)KEY_USED << USE_SHIFT;
	sought->hash = hash_of(sought->addresses, sought->rest);
	brief->source = source;
	brief->destination = destination;
	brief->ports = ports;
	brief->protocol = ip->protocol;
	brief->from_high = from_high;
	in_force = bpf_map_lookup_elem(&active, &first);
	if (!in_force)
		return NOT_BUSY;
	brief->foreseen.active_word = READ_ONCE(in_force->word);
	flow = find_near(sought);
	if (!flow)
		return opens || ip->protocol == IPPROTO_UDP ? OPENS_FLOW : NOT_BUSY;
	if (opens)
		return NOT_BUSY;
	judgement = READ_ONCE(flow->judgement);
	if (!judgement || judgement >> 32 != brief->foreseen.active_word)
		return NOT_BUSY;
	vital = READ_ONCE(*(__u32 *)&flow->state);
	side = (from_high ^ vital >> 8) & FLOW_OPENED_BY_HIGH;
	/* A UDP flow without replies takes the fast path too. */
	if (vital >> 8 & FLOW_HALF_OPEN ? (__u8)vital != FLOW_UDP_OPENED || side : !(BUSY_STATES >> (vital & (FLOW_STATES - 1)) & 1))
		return NOT_BUSY;
	now_ns = coarse_ns();
	now = ticks_of(now_ns);
	bytes = flow->bytes[side];
	if (flow->ifindex[side] != skb->ifindex || is_expired(flow, now) || is_fold_due(bytes, skb->len))
		return NOT_BUSY;
	at_once = is_sent_at_once(in_force, now_ns);
	if (at_once) {
		hop = READ_ONCE(flow->hops[side]);
		if (!is_fresh(hop, now_ns))
			return NOT_BUSY;
	}
	asm volatile("" ::: "memory");
	if (!is_of(flow, sought))
		return NOT_BUSY;
	if (ends)
		flow->state = state_after_fins(set_flags(flow, FLOW_FIN << side));
	flow->last_seen = now;
	flow->packets[side] += packets_of(skb);
	flow->bytes[side] += skb->len;
	if (at_once) {
		__u32 segment = skb->gso_size ? skb->gso_size + length : skb->len - ETH_HLEN;

		pass_word(skb, judgement);
		return send(skb, way_of(hop), segment);
	}
	return pass_word(skb, judgement);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_RELATED_H
#define WEIR_RELATED_H

#define ICMP_HEADER 8
#define NOT_RELATED (-2)

static __always_inline bool is_icmp_error(__u8 type)
{
	return type == ICMP_UNREACHABLE || type == ICMP_SOURCE_QUENCH || type == ICMP_TIME_EXCEEDED ||
	       type == ICMP_PARAMETER_PROBLEM;
}

/* The packet that an ICMP error quotes. False where it quotes too little of one to say which flow it was of. */
static __noinline bool read_quoted(struct __sk_buff *skb, const struct packet *error, struct packet *quoted)
{
	struct iphdr ip;
	__u8 l4[8];
	__u32 at, header;

	if (!error || !quoted)
		return false;
	at = ETH_HLEN + error->header + ICMP_HEADER;
	if (error->payload < ICMP_HEADER + sizeof(ip) + sizeof(l4) || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return false;
	header = ip.ihl * 4;
	if (ip.version != 4 || header < sizeof(ip) || error->payload < ICMP_HEADER + header + sizeof(l4))
		return false;
	if (ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET) || bpf_skb_load_bytes(skb, at + header, l4, sizeof(l4)))
		return false;
	quoted->source = bpf_ntohl(ip.saddr);
	quoted->destination = bpf_ntohl(ip.daddr);
	quoted->protocol = ip.protocol;
	if (ip.protocol == IPPROTO_ICMP) {
		quoted->icmp_type = l4[0];
		quoted->icmp_code = l4[1];
		quoted->icmp_id = l4[4] << 8 | l4[5];
	} else if (header_bytes(ip.protocol)) {
		quoted->source_port = l4[0] << 8 | l4[1];
		quoted->destination_port = l4[2] << 8 | l4[3];
	}
	return true;
}

/* An ICMP error follows the flow that it quotes (D18), where it goes to the one who sent what is quoted, and comes from
 * where that went. Answers NOT_RELATED where it is to be judged by itself.
 */
static __noinline int police_error(struct __sk_buff *skb, const struct packet *error, __u32 active_word, __u32 now)
{
	struct packet quoted = {};
	struct place place = {};
	struct hit_ref ref = {};
	enum drop_reason refused;
	__u32 word, direction, expected;
	__u64 judgement;
	struct flow *flow;

	if (!error || !read_quoted(skb, error, &quoted) || quoted.source != error->destination)
		return NOT_RELATED;
	find_place(&place, &quoted);
	if (!place.stateful)
		return NOT_RELATED;
	flow = bpf_map_lookup_elem(&flows, &place.key);
	if (!flow)
		flow = bpf_map_lookup_elem(&half_open, &place.key);
	if (!flow)
		return NOT_RELATED;
	judgement = READ_ONCE(flow->judgement);
	asm volatile("" ::: "memory");
	if (!same_key(&flow->key, &place.key) || is_expired(flow, now))
		return NOT_RELATED;
	direction = direction_of(flow, &place);
	expected = flow->ifindex[(direction ^ 1) & 1];
	if (!error->outgoing) {
		if (expected && expected != skb->ifindex)
			return NOT_RELATED;
		if (is_spoofed(skb, error))
			return drop(skb, error, DROP_SPOOFED_SOURCE);
	}
	count(COUNT_ICMP_RELATED);
	if (flow->flags & FLOW_FOREIGN)
		return pass(skb, COUNT_FOREIGN);
	word = judgement;
	ref.hit = flow->hit;
	ref.check = flow->hit_check;
	if (judgement >> 32 != active_word >> 1) {
		word = judge(&quoted, active_word, direction);
		refused = refusal_of(word);
		if (refused)
			return refuse(skb, error, (__u64)active_word << 32 | word, refused);
		ref = hit_of(active_word, word);
	}
	add_hit(ref.hit, ref.check, packets_of(skb), skb->len, bpf_ktime_get_coarse_ns());
	return pass_word(skb, word);
}

#endif

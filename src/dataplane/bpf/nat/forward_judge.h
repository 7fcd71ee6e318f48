/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_FORWARD_JUDGE_H
#define WEIR_FORWARD_JUDGE_H

/* The forward judge: a netfilter program (Linux 6.4) at the forward hook. At this hook, the kernel has
 * translated the destination (prerouting) and not yet the source (postrouting). Conntrack has reassembled
 * fragments, and has translated the packets that ICMP errors quote. So the header of the packet contains its
 * real ends: the client before SNAT and the server after DNAT. The forward judge decides two kinds of
 * packets:
 * - packets that the ingress hook did not decide (the mark has `nat_bit` alone), and
 * - packets that the ingress hook passed, and whose destination the kernel then translated. The policy must
 *   allow both destinations.
 *
 * A netfilter program can write neither the packet nor its mark.
 */

#define NETFILTER_DROP 0
#define NETFILTER_ACCEPT 1

/* Subsets of kernel structs: CO-RE relocates the field offsets, and ignores the end of a name from `___`. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net_device___forward {
	int ifindex;
};
struct nf_hook_state {
	struct net_device___forward *in;
	struct net_device___forward *out;
};
struct sk_buff___forward {
	unsigned int len;
	__u32 mark;
	unsigned long _nfct;
	unsigned int end;
	unsigned char *head;
};
struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
};
#pragma clang attribute pop
struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff___forward *skb;
};

extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *dynptr) __ksym __weak;

/* Per-CPU copy of some context fields. The forward judge calls functions of the ingress hook, which read
 * these fields of struct __sk_buff. The context of a netfilter program is another struct, without these
 * fields.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct __sk_buff);
} forwarded SEC(".maps");

/* Returns whether conntrack has translated the destination of a packet. For a reply, conntrack does so if it
 * translates the source of the other direction.
 */
static __always_inline bool has_new_destination(const struct sk_buff___forward *skb)
{
	unsigned long connection = skb->_nfct, info = connection & CONNTRACK_INFO;
	unsigned long translated = info >= CONNTRACK_IS_REPLY ? CONNTRACK_SRC_NAT : CONNTRACK_DST_NAT;

	if (!(connection & ~CONNTRACK_INFO))
		return false;
	return BPF_CORE_READ((struct nf_conn *)(connection & ~CONNTRACK_INFO), status) & translated;
}

/* Stores the destination before DNAT, for events. */
static __always_inline void read_wire_destination(const struct sk_buff___forward *skb, struct packet *packet)
{
	struct nf_conn *connection = (void *)(skb->_nfct & ~CONNTRACK_INFO);
	__be16 port;

	if ((skb->_nfct & CONNTRACK_INFO) >= CONNTRACK_IS_REPLY || !has_new_destination(skb))
		return;
	port = BPF_CORE_READ(connection, tuplehash[0].tuple.dst.u.all);
	packet->is_translated = true;
	packet->wire.destination = address_of_header(BPF_CORE_READ(connection, tuplehash[0].tuple.dst.u3.CONNTRACK_ADDRESS));
	packet->wire.port = packet->destination_port ? bpf_ntohs(port) : 0;
}

/* Returns whether the ingress hook has already decided a packet by its real ends (client before SNAT, server
 * after DNAT). The first packet of a new connection counts as not decided, because conntrack may translate it
 * otherwise than the connection that the ingress hook knew.
 */
static __always_inline bool is_decided_at_ingress(const struct sk_buff___forward *skb, __u32 mark)
{
	if (!(mark & settings.guard_bit))
		return !(mark & settings.nat_bit);
	if (mark & settings.nat_bit)
		return (skb->_nfct & CONNTRACK_INFO) != CONNTRACK_NEW;
	return !has_new_destination(skb);
}

/* Reads the addresses and ports behind an IP header at `at`. Does not read ports if one of the bits
 * `fragment` of the header is set.
 */
static __always_inline bool read_ends(struct bpf_dynptr *dynptr, __u32 at, __u16 fragment, struct packet *packet)
{
	__u8 l4[8];

	if (!read_ip(dynptr, at, fragment, packet))
		return false;
	if (!header_bytes(packet->protocol) || packet->fragment)
		return true;
	if (bpf_dynptr_read(l4, sizeof(l4), dynptr, at + packet->header, 0))
		return false;
	read_ports(packet, l4);
	return true;
}

/* Reads a packet; for an ICMP error, also reads the packet that the error quotes. `bytes`: length of the
 * packet.
 */
static __always_inline bool read_forwarded(struct bpf_nf_ctx *context, __u32 bytes, struct packet *packet, struct packet *quoted)
{
	struct bpf_dynptr dynptr;
	__u32 l4[4];

	if (bpf_dynptr_from_skb((struct __sk_buff *)context->skb, 0, &dynptr) || !read_ends(&dynptr, 0, IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET, packet))
		return false;
	if (packet->fragment)
		return true;
	if (packet->protocol == IPPROTO_TCP) {
		if (bpf_dynptr_read(l4, sizeof(l4), &dynptr, packet->header, 0))
			return false;
		read_tcp(packet, (const __u8 *)l4, bytes - packet->header);
		return true;
	}
	if (packet->protocol == PROTOCOL_ICMP && is_icmp_error(packet->icmp_type))
		quoted->is_quoted = read_ends(&dynptr, packet->header + ICMP_HEADER, IP_FRAGMENT_OFFSET, quoted) && !quoted->fragment;
	return true;
}

/* Classifies an ICMP error by the flow that the error quotes, like `classify_icmp_error`. */
static __always_inline int judge_error(struct __sk_buff *skb, const struct packet *error, __u32 active_word, __u64 *judgement)
{
	__u32 second = 1, direction, expected, word;
	struct packet *quoted = bpf_map_lookup_elem(&packets, &second);
	struct flow *flow;

	if (!quoted || !quoted->is_quoted || !same_address(quoted->source, error->destination))
		return NOT_RELATED;
	find_flow_key(quoted);
	if (!quoted->place.stateful)
		return NOT_RELATED;
	flow = flow_at(find_slot(&quoted->place.key, quoted->place.hash));
	if (!flow)
		return NOT_RELATED;
	*judgement = READ_ONCE(flow->judgement);
	asm volatile("" ::: "memory");
	if (!same_key(&flow->key, &quoted->place.key) || is_expired(flow, ticks_of(coarse_ns())))
		return NOT_RELATED;
	direction = direction_of(flow, quoted);
	expected = flow->ifindex[(direction ^ 1) & 1];
	if (expected && expected != skb->ifindex)
		return NOT_RELATED;
	if (!*judgement)
		return DROP_NONE;
	word = *judgement >> 32 == active_word ? *judgement : classify_again(quoted, active_word, direction);
	*judgement = (__u64)active_word << 32 | word;
	return refusal_of(word);
}

/* Classifies a packet that has no flow, like `begin_flow`. The service plane (TLS and HTTP inspection) cannot
 * take over a packet at this hook, so the verdict redirect refuses it.
 */
static __always_inline enum outcome judge_new(struct __sk_buff *skb, struct packet *packet, const struct active *in_force,
					      __u32 active_word, __u64 now)
{
	bool stray = packet->protocol == IPPROTO_TCP && !opens_tcp(packet);
	__u64 judgement = (__u64)active_word << 32 | classify_packet(packet, active_word, false);
	enum drop_reason refused = refusal_of(judgement);
	__u8 how = 0;

	if (stray && refused) {
		__u32 reply = classify_packet(packet, active_word, true);

		if (!refusal_of(reply)) {
			judgement = (__u64)active_word << 32 | reply;
			refused = DROP_NONE;
			how = AS_REPLY;
		}
	}
	if (stray && now >= READ_ONCE(in_force->pickup_until_ns)) {
		if (!how && (__u32)judgement & AUDITED)
			return pass_alone(skb, packet, judgement);
		refused = DROP_OUT_OF_STATE;
	}
	if (refused)
		return refuse(skb, packet, judgement, refused);
	if (!packet->place.stateful || packet->place.icmp_reply)
		return pass_alone(skb, packet, judgement);
	refused = open_flow(skb, packet, judgement, how);
	return refused ? drop(skb, packet, refused) : pass_verdict(skb, judgement);
}

/* Handles a packet at the forward hook by its real ends (client before SNAT, server after DNAT). The ingress
 * hook has already checked the source address.
 */
__noinline enum outcome judge_forwarded(struct __sk_buff *skb, struct packet *packet)
{
	__u32 first = 0, active_word, direction, word;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);
	struct found_flow found = { .slot = NO_SLOT };
	__u64 now = coarse_ns(), judgement = 0;
	struct flow *flow;

	if (!skb || !packet || !in_force)
		return OUTCOME_DROP;
	active_word = READ_ONCE(in_force->word);
	if (!active_word)
		return settings.pass_without_policy ? pass(skb, COUNT_ALLOW) : drop(skb, packet, DROP_NO_POLICY);
	if (packet->fragment)
		return drop(skb, packet, DROP_FRAGMENT);
	if (packet->protocol == PROTOCOL_ICMP && packet->icmp_type == ICMP_REDIRECT)
		return drop(skb, packet, DROP_ICMP_REDIRECT);
	find_flow_key(packet);
	if (find_flow(packet, &found, now) && found.flow && !is_outside_flow(found.flow, packet, found.judgement)) {
		flow = found.flow;
		direction = direction_of(flow, packet);
		word = found.judgement;
		if (is_stray_reset(flow, packet, direction))
			return drop(skb, packet, DROP_TCP_SEQUENCE);
		if (found.judgement && found.judgement >> 32 != active_word) {
			enum drop_reason refused;

			word = renew_judgement(packet, &found, active_word, direction, now);
			refused = refusal_of(word);
			if (refused)
				return refuse(skb, packet, (__u64)active_word << 32 | word, refused);
		}
		if (flow->ifindex[direction & 1] != skb->ifindex && same_key(&flow->key, &packet->place.key))
			flow->ifindex[direction & 1] = skb->ifindex;
		follow_flow(skb, flow, found.slot, packet, direction, now);
		return found.judgement ? pass_verdict(skb, word) : pass(skb, COUNT_FOREIGN);
	}
	if (packet->protocol == PROTOCOL_ICMP && is_icmp_error(packet->icmp_type)) {
		int refused = judge_error(skb, packet, active_word, &judgement);

		if (refused != NOT_RELATED)
			return finish_error(skb, packet, judgement, refused);
		packet->place.stateful = false;
	}
	return judge_new(skb, packet, in_force, active_word, now);
}

SEC("netfilter")
int weir_forward(struct bpf_nf_ctx *context)
{
	struct sk_buff___forward *skb = context->skb;
	struct packet *packet, *quoted;
	struct skb_shared_info *shared;
	struct __sk_buff *copy;
	__u32 first = 0, mark = skb->mark;

	if (is_decided_at_ingress(skb, mark))
		return NETFILTER_ACCEPT;
	packet = new_packet(0);
	quoted = new_packet(1);
	copy = bpf_map_lookup_elem(&forwarded, &first);
	if (!packet || !quoted || !copy)
		return NETFILTER_DROP;
	shared = (void *)(skb->head + skb->end);
	copy->len = skb->len + ETH_HLEN;
	copy->ifindex = context->state->in->ifindex;
	copy->gso_size = BPF_CORE_READ(shared, gso_size);
	copy->gso_segs = BPF_CORE_READ(shared, gso_segs);
	packet->way.ifindex = context->state->out->ifindex;
	if (!read_forwarded(context, skb->len, packet, quoted)) {
		drop(copy, packet, DROP_MALFORMED);
		return NETFILTER_DROP;
	}
	read_wire_destination(skb, packet);
	return judge_forwarded(copy, packet) == OUTCOME_PASS ? NETFILTER_ACCEPT : NETFILTER_DROP;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_ICMP_ERRORS_H
#define WEIR_ICMP_ERRORS_H

static __always_inline void swap_ends(struct packet *packet)
{
	address_t source = packet->source;
	__u16 source_port = packet->source_port;

	packet->source = packet->destination;
	packet->destination = source;
	packet->source_port = packet->destination_port;
	packet->destination_port = source_port;
}

/* Returns whether an ICMP error came in by the interface that packets to the quoted destination leave by. */
static __always_inline bool is_from_expected_interface(struct __sk_buff *skb, struct packet *quoted)
{
	bool elsewhere;

	swap_ends(quoted);
	elsewhere = is_spoofed(skb, quoted);
	swap_ends(quoted);
	return !elsewhere;
}

/* Returns whether an ICMP error quotes a packet that a socket of the service plane sent. Such a packet has
 * the address of the node or of an inspected host as its source.
 */
static __always_inline bool is_about_inspected(struct __sk_buff *skb, const struct packet *error, struct packet *quoted)
{
	bool found;

	if (!is_inspecting() || error->outgoing || quoted->protocol != IPPROTO_TCP)
		return false;
	swap_ends(quoted);
	found = has_socket(skb, quoted);
	swap_ends(quoted);
	return found && is_from_expected_interface(skb, quoted) && !is_spoofed(skb, error);
}

/* Returns whether an ICMP error quotes a packet of the service plane (TLS and HTTP inspection) whose source
 * the node has translated (SNAT). Conntrack reverses the translation in the error and in the quoted packet,
 * so that the kernel finds the socket.
 */
__noinline bool is_about_translated(struct __sk_buff *skb, const struct packet *error)
{
	struct packet *quoted = new_packet(1);

	if (!error || error->outgoing || !quoted || !read_quoted(skb, error, quoted) ||
	    !same_address(quoted->source, error->destination) || quoted->protocol != IPPROTO_TCP)
		return false;
	swap_ends(quoted);
	return find_real_destination(skb, quoted) && quoted->is_nat_reply && has_socket(skb, quoted) &&
	       !is_spoofed(skb, quoted) && !is_spoofed(skb, error);
}

/* Returns whether an ICMP error quotes a spliced connection (splice.h). If so, translates the sequence
 * number in the quoted header back to the number that the original sender used.
 */
__noinline bool is_about_spliced(struct __sk_buff *skb, const struct packet *error, const struct packet *quoted)
{
	__u32 at, was, is;
	struct join *join;

	if (!is_inspecting() || !error || !quoted || quoted->protocol != IPPROTO_TCP)
		return false;
	join = join_of(quoted);
	if (!join || join->state != JOINED || !is_vouched_for(join, coarse_ns()))
		return false;
	at = ETH_HLEN + error->header + ICMP_HEADER + quoted->header + TCP_SEQUENCE;
	if (bpf_skb_load_bytes(skb, at, &was, sizeof(was)))
		return false;
	is = bpf_htonl(bpf_ntohl(was) - join->sequence);
	/* Update the checksum without a pseudo-header: an ICMP checksum covers only the ICMP message. */
	return !bpf_l4_csum_replace(skb, ETH_HLEN + error->header + ICMP_CHECKSUM, was, is, sizeof(is)) &&
	       !bpf_skb_store_bytes(skb, at, &is, sizeof(is), 0);
}

/* Returns whether an ICMP error quotes a packet with the addresses before NAT. Such an error is forged: hosts
 * on the side that the packet went to have seen only the addresses after NAT. Conntrack finds no connection
 * for such an error. Works for quoted TCP and UDP packets only.
 */
__noinline bool is_quoted_untranslated(struct __sk_buff *skb, struct packet *quoted)
{
	struct active *in_force;
	__u32 first = 0;

	in_force = bpf_map_lookup_elem(&active, &first);
	if (!quoted || !in_force || !may_be_translated(skb, in_force, quoted) ||
	    !find_connection(skb, quoted, quoted->destination, quoted->destination_port, false))
		return false;
	return translates_destination(quoted) || !same_address(quoted->translated.source, quoted->source) ||
	       quoted->translated.ports >> 16 != quoted->source_port;
}

/* Returns how to handle an ICMP error (D18): a drop reason, DROP_NONE, or an outcome. DROP_NONE: the error
 * quotes a flow, goes to the sender of the quoted packet, and comes from the side that the quoted packet went
 * to. `quoted_judgement` is then the `judgement` of that flow; 0 if no rule decided the flow.
 * - ABOUT_SPLICED: the error quotes a spliced connection (splice.h).
 * - ABOUT_INSPECTED: the error quotes an inspected connection, so it goes to the node.
 * - NOT_RELATED: the error must be classified like any other packet.
 */
__noinline int classify_icmp_error(struct __sk_buff *skb, const struct packet *error, __u64 *quoted_judgement)
{
	struct packet *quoted = new_packet(1);
	__u32 direction, expected, slot;
	__u64 judgement;
	struct flow *flow;

	if (!error || !quoted_judgement || !quoted || !read_quoted(skb, error, quoted) || !same_address(quoted->source, error->destination))
		return NOT_RELATED;
	find_flow_key(quoted);
	if (!quoted->place.stateful)
		return NOT_RELATED;
	slot = find_slot(&quoted->place.key, quoted->place.hash);
	flow = flow_at(slot);
	if (!flow) {
		if (!error->outgoing && is_from_expected_interface(skb, quoted) && !is_spoofed(skb, error) && is_about_spliced(skb, error, quoted))
			return ABOUT_SPLICED;
		return is_about_inspected(skb, error, quoted) ? ABOUT_INSPECTED : NOT_RELATED;
	}
	judgement = READ_ONCE(flow->judgement);
	asm volatile("" ::: "memory");
	if (!same_key(&flow->key, &quoted->place.key) || is_expired(flow, ticks_of(coarse_ns())))
		return NOT_RELATED;
	direction = direction_of(flow, quoted);
	/* Before the first packet from the other side, `ifindex` is only an expectation: no packet has verified
	 * this interface.
	 */
	expected = flow->packets[(direction ^ 1) & 1] ? flow->ifindex[(direction ^ 1) & 1] : 0;
	if (!error->outgoing && (expected ? expected != skb->ifindex : !is_from_expected_interface(skb, quoted)))
		return NOT_RELATED;
	if (!error->outgoing && is_spoofed(skb, error))
		return DROP_SPOOFED_SOURCE;
	if (!error->outgoing && is_quoted_untranslated(skb, quoted))
		return NOT_RELATED;
	quoted->is_reply = direction;
	*quoted_judgement = judgement;
	return DROP_NONE;
}

/* Returns the verdict word for an ICMP error that quotes a flow with this `judgement`. If the flow was not
 * classified by the policy in force, classifies the quoted packet again. `classify_icmp_error` has stored
 * that packet in packet buffer 1.
 */
static __always_inline __u32 classify_quoted(__u64 judgement, __u32 active_word)
{
	__u32 second = 1;
	struct packet *quoted = bpf_map_lookup_elem(&packets, &second);

	if (judgement >> 32 == active_word)
		return judgement;
	return quoted ? classify_again(quoted, active_word, quoted->is_reply) : 0;
}

#endif

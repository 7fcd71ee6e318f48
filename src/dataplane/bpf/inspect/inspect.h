/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_INSPECT_H
#define WEIR_INSPECT_H

/* Connections that the service plane inspects. They have no flow: the sockets of the node hold their state.
 * The service plane has one socket to the client, with the address of the server, and one to the server,
 * with the address of the client.
 */
#define COPIED 1 /* index in skb->cb: this packet is a copy that `end_wait` made */

static __always_inline bool is_inspecting(void)
{
	return settings.plane_port != 0;
}

/* Recognizes a copy by its mark. A forged mark has no advantage for its sender. */
static __always_inline void note_reinjected(struct __sk_buff *skb)
{
	if (is_inspecting())
		skb->cb[COPIED] = skb->mark & redirect_bit();
}

/* Delivers a packet to the node, whatever its destination address. */
static __always_inline enum outcome deliver_to_node(struct __sk_buff *skb)
{
	skb->mark |= redirect_bit();
	set_priority(skb, PRIORITY_REDIRECTED);
	count_packet(COUNT_INSPECTED, skb);
	return OUTCOME_PASS;
}

/* Fields of kernel structs; CO-RE relocates their offsets. */
struct sock_common {
	__u32 skc_tw_rcv_nxt;
} __attribute__((preserve_access_index));
struct inet_timewait_sock {
	struct sock_common __tw_common;
} __attribute__((preserve_access_index));
struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
} __attribute__((preserve_access_index));

static __always_inline bool has_socket(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_sock *socket = find_socket(skb, packet, packet->destination, packet->destination_port);
	__u32 state;

	if (!socket)
		return false;
	state = socket->state;
	bpf_sk_release(socket);
	return state != BPF_TCP_LISTEN;
}

/* Reopens a connection whose socket is in TIME-WAIT (RFC 9293, 3.6.1): this packet becomes a RST that ends
 * the wait, and a copy of the SYN then comes in again. An assigned socket would be refused during
 * TIME-WAIT.
 */
static __always_inline void end_wait(struct __sk_buff *skb, const struct packet *packet, __u32 expected)
{
	__u32 at = ETH_HLEN + packet->header, sequence, next = bpf_htonl(expected);
	__u16 flags, reset;

	if (bpf_skb_load_bytes(skb, at + TCP_SEQUENCE, &sequence, sizeof(sequence)) ||
	    bpf_skb_load_bytes(skb, at + TCP_FLAGS, &flags, sizeof(flags)))
		return;
	/* The kernel answers an older SYN, and a copy whose socket still waits. */
	if (skb->cb[COPIED] || (__s32)(bpf_ntohl(sequence) - expected) <= 0)
		return;
	skb->mark |= redirect_bit();
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		return;
	reset = (flags & bpf_htons(0xf000)) | bpf_htons(TCP_RST);
	if (bpf_l4_csum_replace(skb, at + TCP_CHECKSUM, sequence, next, sizeof(next)) ||
	    bpf_l4_csum_replace(skb, at + TCP_CHECKSUM, flags, reset, sizeof(reset)) ||
	    bpf_skb_store_bytes(skb, at + TCP_SEQUENCE, &next, sizeof(next), 0))
		return;
	bpf_skb_store_bytes(skb, at + TCP_FLAGS, &reset, sizeof(reset), 0);
}

/* Delivers a SYN to the socket that has these addresses and ports. Returns false if there is none. */
static __always_inline bool deliver_to_existing(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_sock *socket = find_socket(skb, packet, packet->destination, packet->destination_port);
	struct tcp_timewait_sock *waiting;
	__u32 state, expected = 0;

	if (!socket)
		return false;
	state = socket->state;
	waiting = bpf_skc_to_tcp_timewait_sock(socket);
	if (waiting)
		expected = waiting->tw_sk.__tw_common.skc_tw_rcv_nxt;
	bpf_sk_release(socket);
	if (state == BPF_TCP_LISTEN)
		return false;
	if (waiting)
		end_wait(skb, packet, expected);
	return true;
}

/* Hands the packet that opens a connection to the service plane. NOT_INSPECTED: there is no service plane,
 * or it cannot accept the packet. The packet is not a hit: the service plane counts a hit of the rule that
 * decides the connection.
 */
__noinline enum outcome inspect(struct __sk_buff *skb, const struct packet *packet, __u64 judged)
{
	struct bpf_sock *socket;
	long failed;

	if (!packet || packet->outgoing || packet->fragment != FRAGMENT_NONE)
		return NOT_INSPECTED;
	if (deliver_to_existing(skb, packet))
		return deliver_to_node(skb);
	socket = find_socket(skb, packet, settings.plane_address, settings.plane_port);
	if (!socket)
		return NOT_INSPECTED;
	failed = socket->state == BPF_TCP_LISTEN ? bpf_sk_assign(skb, socket, 0) : -1;
	bpf_sk_release(socket);
	if (failed)
		return NOT_INSPECTED;
	trace(skb, judged);
	return deliver_to_node(skb);
}

/* Later packets of an inspected connection find their socket without help. NOT_INSPECTED: the service plane
 * has no such connection.
 */
__noinline enum outcome continue_inspected(struct __sk_buff *skb, struct packet *packet)
{
	if (!packet || packet->outgoing || !has_socket(skb, packet) || is_to_node(skb, packet))
		return NOT_INSPECTED;
	if (is_spoofed(skb, packet))
		return drop(skb, packet, DROP_SPOOFED_SOURCE);
	return deliver_to_node(skb);
}

/* Whether the node sends this packet with the source address of another host. */
__noinline bool has_foreign_source(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_fib_lookup fib = {};
	long found;

	if (!packet)
		return false;
	fib.family = FAMILY_INET;
	fib.l4_protocol = packet->protocol;
	fib.ipv4_src = bpf_htonl(packet->destination);
	fib.ipv4_dst = bpf_htonl(packet->source);
	fib.ifindex = skb->ifindex;
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), settings.fib_flags);
	return found != BPF_FIB_LKUP_RET_NOT_FWDED && found != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

#endif

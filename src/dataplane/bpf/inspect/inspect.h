/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_INSPECT_H
#define WEIR_INSPECT_H

/* Inspection of TCP connections by the service plane. An inspected connection has no entry in the flow table,
 * because the node's TCP sockets have the state of the connection. The service plane has two sockets for each
 * inspected connection. The socket to the client uses the server's address, and the socket to the server uses
 * the client's address.
 */
/* Index in skb->cb. The value there is not 0 in a clone of a SYN, which `end_wait` has made and redirected to
 * the ingress hook.
 */
#define COPIED 1

static __always_inline bool is_inspecting(void)
{
	return settings.plane_port != 0;
}

/* Recognizes the clone of a SYN that `end_wait` has redirected to this hook: the clone has the redirect mark
 * bit. Stores that bit in skb->cb. A sender that sets the mark bit itself gains nothing, because the stored
 * bit only prevents a second clone.
 */
static __always_inline void note_reinjected(struct __sk_buff *skb)
{
	if (is_inspecting())
		skb->cb[COPIED] = skb->mark & redirect_bit();
}

/* Marks a packet so that the kernel delivers it to the node, whatever its destination address. */
static __always_inline enum outcome deliver_to_node(struct __sk_buff *skb)
{
	skb->mark |= redirect_bit();
	set_priority(skb, PRIORITY_REDIRECTED);
	count_packet(COUNT_INSPECTED, skb);
	return OUTCOME_PASS;
}

/* Subsets of kernel structs: CO-RE relocates the field offsets to those of the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sock_common {
	__u32 skc_tw_rcv_nxt;
};
struct inet_timewait_sock {
	struct sock_common __tw_common;
};
struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
};
#pragma clang attribute pop

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

/* Lets a client open a connection again while the node's old socket is in TIME-WAIT (RFC 9293, 3.6.1). A
 * clone of the SYN enters the ingress hook again. The original packet becomes a RST, which ends the
 * TIME-WAIT before the clone arrives. Without the RST, the kernel would refuse the socket that
 * `bpf_sk_assign` assigns to the SYN.
 */
static __always_inline void end_wait(struct __sk_buff *skb, const struct packet *packet, __u32 expected)
{
	__u32 at = ETH_HLEN + packet->header, sequence, next = bpf_htonl(expected);
	__u16 flags, reset;

	if (bpf_skb_load_bytes(skb, at + TCP_SEQUENCE, &sequence, sizeof(sequence)) ||
	    bpf_skb_load_bytes(skb, at + TCP_FLAGS, &flags, sizeof(flags)))
		return;
	/* Leave two kinds of SYN to the kernel, which replies to them itself: a SYN that is older than the
	 * connection, and a clone whose RST did not end the TIME-WAIT.
	 */
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

/* Searches for a connected or TIME-WAIT socket with the addresses and ports of a SYN. Returns true if there
 * is such a socket; the caller then delivers the SYN to the node. For a TIME-WAIT socket, also calls
 * `end_wait`, so that the client can open the connection again.
 */
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

/* Hands the packet that opens a connection to the service plane (TLS and HTTP inspection). Returns
 * NOT_INSPECTED if no listener of the service plane can accept the packet. Does not count a hit: the service
 * plane counts a hit of the rule that later decides the connection.
 */
__noinline enum outcome inspect(struct __sk_buff *skb, const struct packet *packet, __u64 judgement)
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
	trace(skb, judgement);
	return deliver_to_node(skb);
}

/* Delivers a later packet of an inspected connection to the node, where the kernel finds the socket by
 * addresses and ports. Returns NOT_INSPECTED if the service plane has no socket for the packet.
 */
__noinline enum outcome continue_inspected(struct __sk_buff *skb, struct packet *packet)
{
	if (!packet || packet->outgoing || !has_socket(skb, packet) || is_not_forwarded(skb, packet))
		return NOT_INSPECTED;
	if (is_spoofed(skb, packet))
		return drop(skb, packet, DROP_SPOOFED_SOURCE);
	return deliver_to_node(skb);
}

/* Returns whether the source address of a packet that the node sends belongs to another host, as in packets
 * of the service plane (TLS and HTTP inspection) to servers.
 */
__noinline bool has_foreign_source(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_fib_lookup fib = {};
	long found;

	if (!packet)
		return false;
	fib.family = IP_FAMILY;
	fib.l4_protocol = packet->protocol;
	set_fib_source(&fib, packet->destination);
	set_fib_destination(&fib, packet->source);
	fib.ifindex = skb->ifindex;
	found = bpf_fib_lookup(skb, &fib, sizeof(fib), settings.fib_flags);
	return found != BPF_FIB_LKUP_RET_NOT_FWDED && found != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV6_PROOF_PACKET_H
#define WEIR_IPV6_PROOF_PACKET_H

/* The packet that `weir_prove` classifies: with IPv6 addresses it leaves too little of the stack. It is not
 * an entry of the map `packets`, because the hooks clear and fill that map when a packet interrupts the
 * proof.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} proved SEC(".maps");

static __always_inline struct packet *proved_packet(void)
{
	__u32 first = 0;
	struct packet *packet = bpf_map_lookup_elem(&proved, &first);

	if (packet)
		__builtin_memset(packet, 0, sizeof(*packet));
	return packet;
}

/* Declares a pointer to a cleared struct packet, in which the program `weir_prove` classifies a packet. */
#define PROOF_PACKET(name) struct packet *name = proved_packet()

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_PROVE_H
#define WEIR_PROVE_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PROOF_BATCH);
	__type(key, __u32);
	__type(value, struct proof_packet);
} proof SEC(".maps");

/* Returns the result of `find_list_of`. This function and the next one are not inlined, so that the verifier
 * checks them only once, not once for each path through `prove_one`.
 */
__noinline __u32 list_to_prove(__u32 slot, address_argument_t source, address_argument_t destination, __u32 owner)
{
	return find_list_of(image_of(slot), source, destination, owner);
}

/* Returns the result of `first_blocks_word`. */
__noinline __u32 first_word_to_prove(__u32 slot, __u32 list, address_argument_t destination, __u64 keys)
{
	return first_blocks_word(image_of(slot), list, address_class(slot, passed_address(destination)), keys);
}

static long prove_one(__u32 index, const __u32 *word)
{
	struct proof_packet *asked = bpf_map_lookup_elem(&proof, &index);
	PROOF_PACKET(packet);
	__u32 slot = slot_of(*word), list, near;

	if (!asked || !packet)
		return 1;
	packet->source = asked->source;
	packet->destination = asked->destination;
	packet->source_port = asked->source_port;
	packet->destination_port = asked->destination_port;
	packet->protocol = asked->protocol;
	packet->icmp_type = asked->icmp_type;
	packet->icmp_code = asked->icmp_code;
	list = list_to_prove(slot, PASS_ADDRESS(asked->source), PASS_ADDRESS(asked->destination), asked->owner);
	packet->prefetched.list = list;
	packet->prefetched.active_word = *word;
	asked->word = classify_with(packet, *word, false, WITHOUT_GRANTS);
	/* If the fast path gives another verdict word than the full search, set the word to 0. The reference
	 * evaluator never expects 0, so the proof then fails.
	 */
	near = first_word_to_prove(slot, list, PASS_ADDRESS(asked->destination), (__u64)asked->source_port << 32 | port_map_key(packet));
	if (is_decided(near) && near != asked->word)
		asked->word = 0;
	return 0;
}

/* Classifies the packets in the map `proof` by the compiled policy in one program slot, whether or not that
 * slot is in force. Takes the owner (Kubernetes object) of the source from the packet, and not from the map
 * `members`. Stores each verdict word in the `word` field of its packet. Ignores grants (learned addresses),
 * because the reference evaluator computes the expected words without grants.
 */
SEC("syscall")
int weir_prove(struct proof_request *request)
{
	__u32 word = request->word, count = request->count;

	return bpf_loop(count, prove_one, &word, 0) == count ? 0 : 1;
}

#endif

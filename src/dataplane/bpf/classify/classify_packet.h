/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CLASSIFY_PACKET_H
#define WEIR_CLASSIFY_PACKET_H

/* Returns the verdict word of the flow that the packet belongs to. Rules describe the packets of the side
 * that opened the flow. So for a reply (`reply` is true), the function swaps source and destination before
 * the search. If the fast path has not found the rule list yet, the function finds it, and stores in the
 * packet the count of member changes (members (addresses of pods and nodes).h) that this search has read.
 */
__noinline __u32 classify_with(struct packet *packet, __u32 active_word, bool reply, __u32 flags)
{
	__u32 slot = slot_of(active_word), key, port, list;
	address_argument_t source, destination;
	const struct prefetched *prefetched;

	if (!packet)
		return 0;
	source = reply ? PASS_ADDRESS(packet->destination) : PASS_ADDRESS(packet->source);
	destination = reply ? PASS_ADDRESS(packet->source) : PASS_ADDRESS(packet->destination);
	key = reply ? port_map_key_of_opener(packet) : port_map_key(packet);
	port = reply ? packet->destination_port : packet->source_port;
	/* The fast path computed `prefetched` from the packet's addresses without a swap, so these results are
	 * not valid for a reply. It computed the verdict word without expired grants, so the function uses that
	 * word only if `flags` is 0.
	 */
	prefetched = &packet->prefetched;
	list = reply || prefetched->active_word != active_word ? 0 : prefetched->list;
	if (list && prefetched->word && !flags)
		return prefetched->word;
	if (!list)
		list = find_list(image_of(slot), source, destination, &packet->prefetched.member_changes);
	return classify(slot | flags, list, destination, key, port);
}

static __always_inline __u32 classify_packet(struct packet *packet, __u32 active_word, bool reply)
{
	return classify_with(packet, active_word, reply, 0);
}

/* Returns the verdict word for a packet of an existing flow, like `classify_packet`. If only an expired grant
 * (a destination learned for a hostname pattern) would allow the flow, the flow stays allowed (D12).
 */
static __always_inline __u32 classify_again(struct packet *packet, __u32 active_word, bool reply)
{
	__u32 word = classify_packet(packet, active_word, reply), kept;

	if (!refusal_of(word))
		return word;
	kept = classify_with(packet, active_word, reply, EXPIRED_TOO);
	return refusal_of(kept) ? word : kept;
}

#endif

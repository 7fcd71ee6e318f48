/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The IPv6 header of a packet, and the extension headers after it (RFC 8200). */
#ifndef WEIR_IPV6_HEADER_H
#define WEIR_IPV6_HEADER_H

/* The greatest length of a packet. The fragment header is not part of the reassembled packet, so a fragment
 * may end eight bytes later.
 */
#define IP_BYTES_MAX (40 + 65535 + 8)

/* The greatest length of an IPv6 packet that its header can express. */
#define IP_LENGTH_MAX (40 + 65535)

/* Lengths of the Ethernet, IPv6 and TCP headers together, without extension headers and TCP options. */
#define HEADERS_USUAL (ETH_HLEN + 40 + 20)

/* The maximum number of extension headers in a packet. */
#define EXTENSIONS_MAX 4
/* The greatest length of an IPv6 header with its extension headers. */
#define EXTENDED_MAX (40 + EXTENSIONS_MAX * 256 * 8)

#define FRAGMENT_HEADER_OFFSET_SHIFT 3
#define FRAGMENT_HEADER_MORE 1

/* The first eight bytes of an extension header, with the fields of a fragment header. */
struct extension {
	__u8 next;
	__u8 more_units;     /* length in units of eight bytes, without the first unit; no field of a fragment header */
	__be16 fragment;
	__be32 fragment_id;
};

/* Returns whether `parse_ip` walks over this header, or drops the packet because of it. Every other header is
 * the protocol of the packet, also if it is an extension header such as that of mobility.
 */
static __always_inline bool is_extension(__u8 header)
{
	return header == IPPROTO_HOPOPTS || header == IPPROTO_DSTOPTS || header == IPPROTO_FRAGMENT || header == IPPROTO_ROUTING;
}

/* Returns whether no extension header follows an IPv6 header. */
static __always_inline bool is_plain_ip(const ip_header_t *ip)
{
	return *(const __u8 *)ip >> 4 == 6 && !is_extension(ip->nexthdr);
}

/* Returns the length of an IPv6 packet, with its header. */
static __always_inline __u32 ip_bytes(const ip_header_t *ip)
{
	return sizeof(*ip) + bpf_ntohs(ip->payload_len);
}

/* A fragment has a fragment header, so its IPv6 header is not plain (`is_plain_ip`). */
static __always_inline bool is_ip_fragment(const ip_header_t *ip)
{
	(void)ip;
	return false;
}

static __always_inline __u8 protocol_of(const ip_header_t *ip)
{
	return ip->nexthdr;
}

/* Walks over the extension headers of a packet, of which `packet->protocol` is the first. `start` is the
 * offset of the IPv6 header in the frame, and `total` the length of the packet from there on. Stores in
 * `packet` the protocol after these headers, the length of all headers, and the offset, flag and id of a
 * fragment. A packet that is its only fragment counts as no fragment (RFC 6946). The walk ends at the
 * fragment header of a later fragment. Returns DROP_SOURCE_ROUTE for a routing header. Returns
 * DROP_FRAGMENT_TINY for a first fragment that ends in an extension header (RFC 7112). Returns
 * DROP_MALFORMED for more than EXTENSIONS_MAX headers, hop-by-hop options that are not first, and a second
 * fragment header.
 */
__noinline enum drop_reason walk_extensions(struct __sk_buff *skb, struct packet *packet, __u32 start, __u32 total)
{
	enum drop_reason too_short = DROP_MALFORMED;
	bool has_fragment_header = false;
	__u32 at = sizeof(ip_header_t);
	__u8 now;

	if (!packet)
		return DROP_MALFORMED;
	now = packet->protocol;
	for (int count = 0; count <= EXTENSIONS_MAX; count++) {
		struct extension extension;

		if (now == IPPROTO_ROUTING)
			return DROP_SOURCE_ROUTE;
		if (!is_extension(now)) {
			packet->protocol = now;
			packet->header = at;
			return DROP_NONE;
		}
		if (count == EXTENSIONS_MAX || (now == IPPROTO_HOPOPTS && count > 0))
			return DROP_MALFORMED;
		if (at + sizeof(extension) > total || bpf_skb_load_bytes(skb, start + at, &extension, sizeof(extension)))
			return too_short;
		at += sizeof(extension);
		if (now == IPPROTO_FRAGMENT) {
			__u16 field = bpf_ntohs(extension.fragment), offset = field >> FRAGMENT_HEADER_OFFSET_SHIFT;

			if (has_fragment_header)
				return DROP_MALFORMED;
			has_fragment_header = true;
			if (offset || field & FRAGMENT_HEADER_MORE) {
				packet->fragment_field = offset | (field & FRAGMENT_HEADER_MORE ? IP_MORE_FRAGMENTS : 0);
				packet->id = bpf_ntohl(extension.fragment_id);
				packet->unfragmented = at;
				too_short = DROP_FRAGMENT_TINY;
			}
			if (offset) {
				packet->protocol = extension.next;
				packet->header = at;
				return DROP_NONE;
			}
		} else {
			at += extension.more_units * 8;
			if (at > total)
				return too_short;
		}
		now = extension.next;
	}
	return DROP_MALFORMED;
}

/* Reads the IPv6 header of a packet and its extension headers into `packet`, and stores in `to` where the
 * bytes after these headers are. Checks the lengths, and not the fragment. A packet whose payload
 * length is 0, such as a jumbogram, is malformed unless it is a GSO packet.
 */
static __always_inline enum drop_reason parse_ip(struct __sk_buff *skb, struct packet *packet, struct ip_payload *to)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	ip_header_t *ip = data + ETH_HLEN;
	__u32 label, total;
	__u64 header = sizeof(*ip);

	if (data + HEADERS_USUAL > data_end) {
		if (data_end - data < skb->len && bpf_skb_pull_data(skb, skb->len < HEADERS_USUAL ? skb->len : HEADERS_USUAL))
			return DROP_MALFORMED;
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
		ip = data + ETH_HLEN;
		if ((void *)(ip + 1) > data_end)
			return DROP_MALFORMED;
	}
	label = bpf_ntohl(ip->label);
	total = ip_bytes(ip);
	/* In a GSO packet of more than 64 KiB, the payload length of the IPv6 header is 0. */
	if (!ip->payload_len && skb->gso_size && skb->len > ETH_HLEN + IP_LENGTH_MAX)
		total = IP_LENGTH_MAX;
	if (label >> 28 != 6 || total == sizeof(*ip) || total + ETH_HLEN > skb->len)
		return DROP_MALFORMED;

	packet->source = address_of_header(ip->saddr);
	packet->destination = address_of_header(ip->daddr);
	packet->protocol = ip->nexthdr;
	packet->tos = label >> 20;
	packet->header = header;
	if (is_extension(ip->nexthdr)) {
		enum drop_reason wrong = walk_extensions(skb, packet, ETH_HLEN, total);
		__u32 need;

		if (wrong)
			return wrong;
		header = packet->header;
		need = header + HEADERS_USUAL - sizeof(*ip);
		if (bpf_skb_pull_data(skb, need < skb->len ? need : skb->len))
			return DROP_MALFORMED;
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
	}
	/* Compare the variable itself with its upper bound, at the place where it is added to a pointer. Otherwise
	 * the verifier of Linux 6.1 derives no bound, and rejects the accesses after `to->start`.
	 */
	asm volatile("" : "+r"(header));
	if (header > EXTENDED_MAX || total < header || data + ETH_HLEN + header > data_end)
		return DROP_MALFORMED;
	packet->payload = total - header;
	to->start = data + ETH_HLEN + header;
	to->data_end = data_end;
	to->header = header;
	to->total = total;
	to->payload = total - header;
	return DROP_NONE;
}

/* IPv6 has no options in its header, and a routing header is no option. */
static __always_inline enum drop_reason check_ip_options(struct __sk_buff *skb, __u32 header)
{
	(void)skb;
	(void)header;
	return DROP_NONE;
}

#endif

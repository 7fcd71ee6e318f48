/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The IPv4 header of a packet. */
#ifndef WEIR_IPV4_HEADER_H
#define WEIR_IPV4_HEADER_H

#define IP_BYTES_MAX 65535
#define OPTION_LOOSE_SOURCE_ROUTE 131
#define OPTION_STRICT_SOURCE_ROUTE 137

/* Returns whether an IPv4 header has no options. */
static __always_inline bool is_plain_ip(const ip_header_t *ip)
{
	return *(const __u8 *)ip == 0x45;
}

/* Returns the length of an IPv4 packet, with its header. */
static __always_inline __u32 ip_bytes(const ip_header_t *ip)
{
	return bpf_ntohs(ip->tot_len);
}

static __always_inline bool is_ip_fragment(const ip_header_t *ip)
{
	return ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET);
}

static __always_inline __u8 protocol_of(const ip_header_t *ip)
{
	return ip->protocol;
}

/* Lengths of the Ethernet, IPv4 and TCP headers together, without TCP options: HEADERS_USUAL without IP
 * options, HEADERS_MAX with 40 bytes of IP options.
 */
#define HEADERS_USUAL (ETH_HLEN + 20 + 20)
#define HEADERS_MAX (ETH_HLEN + 60 + 20)

struct options {
	__u32 at;
	__u32 count;
	enum drop_reason wrong;
	__u8 bytes[OPTIONS_MAX + 8];
};

static long check_option(__u32 index, struct options *options)
{
	__u32 at = options->at, kind, length;

	if (at >= options->count || at >= OPTIONS_MAX)
		return 1;
	kind = options->bytes[at];
	if (kind == OPTION_END)
		return 1;
	length = kind == OPTION_NOP ? 1 : options->bytes[at + 1];
	options->wrong = kind == OPTION_LOOSE_SOURCE_ROUTE || kind == OPTION_STRICT_SOURCE_ROUTE ? DROP_SOURCE_ROUTE
			 : (kind != OPTION_NOP && length < 2) || at + length > options->count    ? DROP_MALFORMED
												 : DROP_NONE;
	options->at = at + length;
	return options->wrong != DROP_NONE;
}

/* Checks the options of the IPv4 header (RFC 791), which are `bytes` long. Returns DROP_SOURCE_ROUTE for a
 * source route, and DROP_MALFORMED for a wrong length.
 */
__noinline enum drop_reason check_options(struct __sk_buff *skb, __u32 bytes)
{
	struct options options = { .count = bytes };

	if (bytes < 4 || bytes > OPTIONS_MAX)
		return DROP_MALFORMED;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(struct iphdr), options.bytes, bytes))
		return DROP_MALFORMED;
	bpf_loop(OPTIONS_MAX, check_option, &options, 0);
	return options.wrong;
}

/* Reads the IPv4 header of a packet into `packet`, and stores in `at` where the bytes after the header are.
 * Checks the lengths, and neither the options nor the fragment.
 */
static __always_inline enum drop_reason parse_ip(struct __sk_buff *skb, struct packet *packet, struct ip_payload *at)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 header, total;

	if (data + HEADERS_USUAL > data_end || ip->ihl != 5) {
		if (data_end - data < HEADERS_MAX && data_end - data < skb->len &&
		    bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX))
			return DROP_MALFORMED;
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
		ip = data + ETH_HLEN;
		if ((void *)(ip + 1) > data_end)
			return DROP_MALFORMED;
	}
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	/* In a GSO packet of more than 64 KiB, the total length of the IPv4 header is 0. */
	if (total == 0 && skb->gso_size && skb->len > IP_BYTES_MAX)
		total = IP_BYTES_MAX;
	/* The first comparison is redundant, but the verifier of Linux 6.1 needs it: without the comparison, the
	 * verifier does not learn that the header is longer than 0.
	 */
	if (total < sizeof(*ip) || ip->version != 4 || header < sizeof(*ip) || total < header || total + ETH_HLEN > skb->len)
		return DROP_MALFORMED;
	if (data + ETH_HLEN + header > data_end)
		return DROP_MALFORMED;

	packet->source = address_of_header(ip->saddr);
	packet->destination = address_of_header(ip->daddr);
	packet->protocol = ip->protocol;
	packet->tos = ip->tos;
	packet->id = bpf_ntohs(ip->id);
	packet->header = header;
	packet->payload = total - header;
	packet->fragment_field = bpf_ntohs(ip->frag_off) & (IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET);
	at->start = data + ETH_HLEN + header;
	at->data_end = data_end;
	at->header = header;
	at->total = total;
	at->payload = total - header;
	return DROP_NONE;
}

/* Reads the IPv4 header at offset `at` of a dynptr. The packet counts as a later fragment if one of the bits
 * `fragment` of the header is set.
 */
static __always_inline bool read_ip(struct bpf_dynptr *dynptr, __u32 at, __u16 fragment, struct packet *packet)
{
	struct iphdr ip;
	__u32 header;

	if (bpf_dynptr_read(&ip, sizeof(ip), dynptr, at, 0) || ip.version != 4)
		return false;
	header = ip.ihl * 4;
	if (header < sizeof(ip))
		return false;
	packet->source = address_of_header(ip.saddr);
	packet->destination = address_of_header(ip.daddr);
	packet->protocol = ip.protocol;
	packet->header = header;
	if (ip.frag_off & bpf_htons(fragment))
		packet->fragment = FRAGMENT_LATER;
	return true;
}

/* Checks the options of an IPv4 header of `header` bytes. */
static __always_inline enum drop_reason check_ip_options(struct __sk_buff *skb, __u32 header)
{
	return header == sizeof(struct iphdr) ? DROP_NONE : check_options(skb, header - sizeof(struct iphdr));
}

#endif

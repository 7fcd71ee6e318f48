/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_HEADERS_H
#define WEIR_HEADERS_H

#define IP_MORE_FRAGMENTS 0x2000
#define IP_FRAGMENT_OFFSET 0x1fff
#define IP_BYTES_MAX 65535

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define DNS_PORT 53

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_LOOSE_SOURCE_ROUTE 131
#define OPTION_STRICT_SOURCE_ROUTE 137
#define OPTIONS_MAX 40

/* Lengths of the Ethernet, IPv4 and TCP headers together, without TCP options: HEADERS_USUAL without IP
 * options, HEADERS_MAX with 40 bytes of IP options.
 */
#define HEADERS_USUAL (ETH_HLEN + 20 + 20)
#define HEADERS_MAX (ETH_HLEN + 60 + 20)

enum fragment_place {
	FRAGMENT_NONE = 0,
	FRAGMENT_FIRST = 1,
	FRAGMENT_LATER = 2,
};

/* Returns a cleared per-CPU packet buffer. Buffer 0 is for the packet itself, and buffer 1 for the packet
 * that an ICMP error quotes.
 */
static __always_inline struct packet *new_packet(__u32 which)
{
	struct packet *packet = bpf_map_lookup_elem(&packets, &which);

	if (packet)
		__builtin_memset(packet, 0, sizeof(*packet));
	return packet;
}

/* Reads the ports of a packet, or type, code and identifier of an ICMP packet. `l4`: the first 8 bytes after
 * the IP header.
 */
static __always_inline void read_ports(struct packet *packet, const __u8 *l4)
{
	if (packet->protocol == PROTOCOL_ICMP) {
		packet->icmp_type = l4[0];
		packet->icmp_code = l4[1];
		packet->icmp_id = l4[4] << 8 | l4[5];
	} else {
		packet->source_port = l4[0] << 8 | l4[1];
		packet->destination_port = l4[2] << 8 | l4[3];
	}
}

/* Returns the minimum header length of an IP protocol in bytes; 0 for a protocol whose header is not
 * parsed.
 */
static __always_inline __u32 header_bytes(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return 20;
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		return 12;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case PROTOCOL_ICMP:
		return 8;
	default:
		return 0;
	}
}

/* Returns whether a TCP sender can produce these flags: SYN, SYN ACK, RST, RST ACK, FIN ACK or ACK, each
 * with any of PSH, URG, ECE and CWR.
 */
static __always_inline bool is_tcp_combination(__u8 flags)
{
	__u32 index = (flags & (TCP_FIN | TCP_SYN | TCP_RST)) | (flags & TCP_ACK) >> 1;

	return 0x1714 >> index & 1;
}

static __always_inline bool opens_tcp(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* Reads the flags and numbers of a TCP header, of which at least 14 bytes are readable. `bytes`: length of
 * the TCP header and its payload.
 */
static __always_inline void read_tcp(struct packet *packet, const __u8 *l4, __u32 bytes)
{
	__u32 header = (l4[12] >> 4) * 4;

	packet->data = bytes > header ? bytes - header : 0;
	packet->tcp_flags = l4[13];
	packet->sequence = bpf_ntohl(*(const __u32 *)(l4 + 4));
	packet->acknowledgment = bpf_ntohl(*(const __u32 *)(l4 + 8));
}

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

/* Sets `packet->fragment` to FRAGMENT_FIRST or FRAGMENT_LATER. Returns DROP_MALFORMED if no IPv4 datagram can
 * have this fragment.
 */
static __always_inline enum drop_reason place_fragment(struct packet *packet)
{
	__u32 from = (packet->fragment_field & IP_FRAGMENT_OFFSET) * 8;

	if (from + packet->payload + packet->header > IP_BYTES_MAX || packet->payload == 0)
		return DROP_MALFORMED;
	if (packet->fragment_field & IP_MORE_FRAGMENTS && packet->payload & 7)
		return DROP_MALFORMED;
	packet->fragment = from == 0 ? FRAGMENT_FIRST : FRAGMENT_LATER;
	return DROP_NONE;
}

static __always_inline enum drop_reason parse(struct __sk_buff *skb, struct packet *packet)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	__u32 header, total, need;
	struct iphdr *ip = data + ETH_HLEN;
	enum drop_reason too_short;
	__u8 *l4;

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
	too_short = DROP_MALFORMED;
	if (packet->fragment_field) {
		if (place_fragment(packet))
			return DROP_MALFORMED;
		too_short = DROP_FRAGMENT_TINY;
	}
	l4 = data + ETH_HLEN + header;
	need = packet->fragment == FRAGMENT_LATER ? 0 : header_bytes(packet->protocol);
	if (need) {
		if (header + need > total)
			return too_short;
		if ((void *)(l4 + 8) > data_end)
			return DROP_MALFORMED;
		read_ports(packet, l4);
		if (packet->protocol == IPPROTO_TCP) {
			__u32 offset;

			if ((void *)(l4 + 20) > data_end)
				return DROP_MALFORMED;
			offset = (l4[12] >> 4) * 4;
			if (offset < 20)
				return DROP_MALFORMED;
			if (header + offset > total)
				return too_short;
			read_tcp(packet, l4, skb->len > IP_BYTES_MAX + ETH_HLEN ? skb->len - ETH_HLEN - header : total - header);
			if (!is_tcp_combination(packet->tcp_flags))
				return DROP_TCP_FLAGS;
		} else if (packet->protocol == IPPROTO_UDP && !packet->fragment && !skb->gso_size) {
			__u32 length = l4[4] << 8 | l4[5];

			if (length < 8 || header + length > total)
				return DROP_MALFORMED;
		}
	}
	return header == sizeof(*ip) ? DROP_NONE : check_options(skb, header - sizeof(*ip));
}

static __always_inline __u32 port_map_key(const struct packet *packet)
{
	__u32 low16 = packet->protocol == PROTOCOL_ICMP ? packet->icmp_type << 8 | packet->icmp_code
							: packet->destination_port;

	return (__u32)packet->protocol << 16 | low16;
}

/* Returns the port-map key of the packet to which this packet is the reply. The key contains the source port
 * of the reply, or the ICMP type of the query.
 */
static __always_inline __u32 port_map_key_of_opener(const struct packet *packet)
{
	__u32 low16 = packet->source_port;

	if (packet->protocol == PROTOCOL_ICMP)
		low16 = icmp_query_of(packet->icmp_type) << 8;
	return (__u32)packet->protocol << 16 | low16;
}

#endif

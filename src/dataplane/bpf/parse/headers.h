/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_HEADERS_H
#define WEIR_HEADERS_H

/* The format of `fragment_field` in struct packet: that of the field in an IPv4 header, with the offset in
 * units of eight bytes.
 */
#define IP_MORE_FRAGMENTS 0x2000
#define IP_FRAGMENT_OFFSET 0x1fff

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* The length of an ICMP header, after which an error quotes a packet, and the offset of its checksum. */
#define ICMP_HEADER 8
#define ICMP_CHECKSUM 2

#define DNS_PORT 53

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTIONS_MAX 40

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

/* The bytes after the IP header of a packet, as `parse_ip` finds them. */
struct ip_payload {
	__u8 *start;
	void *data_end; /* end of the readable bytes */
	__u32 header;   /* length of the IP header, in bytes */
	__u32 total;    /* length of the IP header and the payload */
	__u32 payload;
};

/* Reads the ports, or the ICMP type, code and identifier, of a packet that an ICMP error quotes. `l4`: the
 * first 8 bytes after the quoted IP header.
 */
static __always_inline void read_quoted_ports(struct packet *quoted, __u8 protocol, const __u8 *l4)
{
	if (protocol == PROTOCOL_ICMP) {
		quoted->icmp_type = l4[0];
		quoted->icmp_code = l4[1];
		quoted->icmp_id = l4[4] << 8 | l4[5];
	} else if (header_bytes(protocol)) {
		quoted->source_port = l4[0] << 8 | l4[1];
		quoted->destination_port = l4[2] << 8 | l4[3];
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

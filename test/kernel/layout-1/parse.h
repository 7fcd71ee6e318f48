/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#define IP_MORE_FRAGMENTS 0x2000
#define IP_FRAGMENT_OFFSET 0x1fff

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* Length of the Ethernet header, the longest IPv4 header and a TCP header without options. */
#define HEADERS_MAX (ETH_HLEN + 60 + 20)

/* The fields of a packet, in host byte order. The ports are 0 if the protocol has no ports. `low16` is the
 * destination port, or ICMP type << 8 | code.
 */
struct packet {
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
	__u16 icmp_id;
	__u8 protocol;
	__u8 tcp_flags;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 tos;
	__u8 fragment;
};

/* Returns the minimum header length of an IP protocol in bytes. */
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
	case IPPROTO_ICMP:
		return 8;
	default:
		return 0;
	}
}

static __always_inline enum drop_reason parse(struct __sk_buff *skb, struct packet *packet)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	__u32 linear = data_end - data, header, total, need;
	struct iphdr *ip;
	__u8 *l4;

	if (linear < HEADERS_MAX && linear < skb->len) {
		if (bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX))
			return DROP_MALFORMED;
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
	}
	ip = data + ETH_HLEN;
	if ((void *)(ip + 1) > data_end)
		return DROP_MALFORMED;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header < sizeof(*ip) || total < header || total + ETH_HLEN > skb->len)
		return DROP_MALFORMED;
	if (data + ETH_HLEN + header > data_end)
		return DROP_MALFORMED;

	packet->source = bpf_ntohl(ip->saddr);
	packet->destination = bpf_ntohl(ip->daddr);
	packet->protocol = ip->protocol;
	packet->tos = ip->tos;
	if (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET)) {
		packet->fragment = 1;
		return DROP_NONE;
	}

	need = header_bytes(packet->protocol);
	if (need == 0)
		return DROP_NONE;
	l4 = data + ETH_HLEN + header;
	if (header + need > total || (void *)(l4 + 8) > data_end)
		return DROP_MALFORMED;
	if (packet->protocol == IPPROTO_ICMP) {
		packet->icmp_type = l4[0];
		packet->icmp_code = l4[1];
		packet->icmp_id = l4[4] << 8 | l4[5];
		return DROP_NONE;
	}
	packet->source_port = l4[0] << 8 | l4[1];
	packet->destination_port = l4[2] << 8 | l4[3];
	if (packet->protocol == IPPROTO_TCP) {
		__u32 offset;

		if ((void *)(l4 + 20) > data_end)
			return DROP_MALFORMED;
		offset = (l4[12] >> 4) * 4;
		if (offset < 20 || header + offset > total)
			return DROP_MALFORMED;
		packet->tcp_flags = l4[13];
	}
	return DROP_NONE;
}

static __always_inline __u32 leaf_key(const struct packet *packet)
{
	__u32 low16 = packet->protocol == IPPROTO_ICMP ? packet->icmp_type << 8 | packet->icmp_code
						       : packet->destination_port;

	return (__u32)packet->protocol << 16 | low16;
}

#endif

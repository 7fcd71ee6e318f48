// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* A BPF program that parses an IPv6 packet as the datapath does, and stores what it found for the test. */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

#include "../../src/dataplane/bpf/ipv6/address.h"
#include "../../src/dataplane/bpf/weir.h"
#include "../../src/dataplane/bpf/maps.h"
#include "../../src/dataplane/bpf/ipv6/icmp.h"
#include "../../src/dataplane/bpf/parse/headers.h"
#include "../../src/dataplane/bpf/parse/discovery.h"
#include "../../src/dataplane/bpf/ipv6/header.h"
#include "../../src/dataplane/bpf/parse/parse.h"

/* The result of the last run. ipv6-parse.test.ts reads it. */
struct parsed {
	address_t source;
	address_t destination;
	__u32 id;
	__u16 source_port;
	__u16 destination_port;
	__u16 icmp_id;
	__u16 header;
	__u16 payload;
	__u16 fragment_field;
	__u8 reason;
	__u8 protocol;
	__u8 fragment;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 tcp_flags;
	__u8 tos;
	__u8 reserved;
};
_Static_assert(sizeof(struct parsed) == 56, "the test knows the offsets");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct parsed);
} parsed SEC(".maps");

SEC("tc")
int weir_ingress(struct __sk_buff *skb)
{
	struct packet *packet = new_packet(0);
	__u32 first = 0;
	struct parsed *found = bpf_map_lookup_elem(&parsed, &first);

	if (!packet || !found)
		return -1;
	found->reason = parse(skb, packet);
	found->source = packet->source;
	found->destination = packet->destination;
	found->id = packet->id;
	found->source_port = packet->source_port;
	found->destination_port = packet->destination_port;
	found->icmp_id = packet->icmp_id;
	found->header = packet->header;
	found->payload = packet->payload;
	found->fragment_field = packet->fragment_field;
	found->protocol = packet->protocol;
	found->fragment = packet->fragment;
	found->icmp_type = packet->icmp_type;
	found->icmp_code = packet->icmp_code;
	found->tcp_flags = packet->tcp_flags;
	found->tos = packet->tos;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * BPF programs that generate and count the traffic of the forwarding benchmarks. `inject` generates frames
 * (BPF_PROG_TEST_RUN with live frames). The programs `sink_server` and `sink_client` count and drop frames
 * at their destination.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "../../src/dataplane/bpf/ipv4/address.h"
#include "../../src/dataplane/bpf/weir.h"

#define FRAME_BYTES 60
#define IPV6_FRAME_BYTES 62
/* The IPv6 address that stands for an IPv4 address A.B.C.D is 2001:db8:AB:CD::1. See `ipv6-policy.ts`. */
#define IPV6_NETWORK 0x20010db8

/* Addresses and ports of a flow, in network byte order. */
struct tuple {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	__u32 reserved;
};

/* The parameters and results of a run. User space writes this struct between two runs; see frames.ts. */
struct plan {
	__u8 node_mac[8];
	__u8 own_mac[8];
	__u32 tuples;   /* number of elements of the map `tuples` in use; each frame uses the next element */
	__u32 next;
	__u32 round;    /* number of complete rounds over all tuples; with `new_ports`, each round has a different source port */
	__u32 new_ports;
	__u32 reversed; /* 1: frames go from the destination of each tuple to its source */
	__u8 protocol;
	__u8 tcp_flags;
	__u8 ipv6; /* 1: `inject` makes UDP packets of IPv6 */
	__u8 reserved;
	__u64 made;
	__u64 received[2]; /* frames counted by `sink_server`, then by `sink_client` */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tuple);
} tuples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plan);
} plans SEC(".maps");

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline __u32 words_of(__be32 address)
{
	return (address & 0xffff) + (address >> 16);
}

static __always_inline struct tuple *next_tuple(struct plan *plan)
{
	__u32 index = plan->next;

	if (index + 1 < plan->tuples) {
		plan->next = index + 1;
	} else {
		plan->next = 0;
		plan->round += 1;
	}
	return bpf_map_lookup_elem(&tuples, &index);
}

static __always_inline void set_ipv6(struct in6_addr *address, __be32 ipv4)
{
	address->in6_u.u6_addr32[0] = bpf_htonl(IPV6_NETWORK);
	address->in6_u.u6_addr32[1] = ipv4;
	address->in6_u.u6_addr32[2] = 0;
	address->in6_u.u6_addr32[3] = bpf_htonl(1);
}

static __always_inline int inject_ipv6(struct xdp_md *ctx, const struct plan *plan, const struct tuple *tuple, __be16 source_port)
{
	__u8 *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	__be16 *ports = (void *)(ip + 1);

	if (data + IPV6_FRAME_BYTES > data_end)
		return XDP_ABORTED;
	__builtin_memcpy(eth->h_dest, plan->node_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, plan->own_mac, ETH_ALEN);
	eth->h_proto = bpf_htons(ETH_P_IPV6);
	*(__be32 *)ip = bpf_htonl(0x60000000);
	ip->payload_len = bpf_htons(8);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = 64;
	set_ipv6(&ip->saddr, plan->reversed ? tuple->destination : tuple->source);
	set_ipv6(&ip->daddr, plan->reversed ? tuple->source : tuple->destination);
	ports[0] = plan->reversed ? tuple->destination_port : source_port;
	ports[1] = plan->reversed ? source_port : tuple->destination_port;
	ports[2] = bpf_htons(8);
	ports[3] = 0;
	return XDP_TX;
}

/* Writes the next frame. Writes every byte of the headers, because the kernel reuses frames that the
 * network stack has modified.
 */
SEC("xdp")
int inject(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)data;
	struct iphdr *ip = (void *)(eth + 1);
	__be16 *ports = (void *)(ip + 1);
	__u32 first = 0, sum;
	struct plan *plan = bpf_map_lookup_elem(&plans, &first);
	struct tuple *tuple;
	__be16 source_port;

	if (!plan || data + FRAME_BYTES > data_end)
		return XDP_ABORTED;
	tuple = next_tuple(plan);
	if (!tuple)
		return XDP_ABORTED;
	plan->made += 1;
	source_port = tuple->source_port;
	if (plan->new_ports)
		source_port = bpf_htons(1024 + plan->round);
	if (plan->ipv6)
		return inject_ipv6(ctx, plan, tuple, source_port);

	__builtin_memcpy(eth->h_dest, plan->node_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, plan->own_mac, ETH_ALEN);
	eth->h_proto = bpf_htons(ETH_P_IP);
	*(__u8 *)ip = 0x45;
	ip->tos = 0;
	ip->tot_len = bpf_htons(FRAME_BYTES - ETH_HLEN);
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = 64;
	ip->protocol = plan->protocol;
	ip->saddr = plan->reversed ? tuple->destination : tuple->source;
	ip->daddr = plan->reversed ? tuple->source : tuple->destination;
	sum = bpf_htons(0x4500) + ip->tot_len + ip->frag_off + bpf_htons(64 << 8 | plan->protocol) +
	      words_of(ip->saddr) + words_of(ip->daddr);
	ip->check = fold(sum);
	ports[0] = plan->reversed ? tuple->destination_port : source_port;
	ports[1] = plan->reversed ? source_port : tuple->destination_port;
	if (plan->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = (void *)ports;

		tcp->seq = bpf_htonl(1);
		tcp->ack_seq = bpf_htonl(plan->tcp_flags & 0x10 ? 1 : 0);
		((__u8 *)tcp)[12] = 5 << 4;
		((__u8 *)tcp)[13] = plan->tcp_flags;
		tcp->window = bpf_htons(1024);
		tcp->urg_ptr = 0;
		/* The frame has six more bytes after the TCP header: padding to the minimum frame size, so the IPv4
		 * length excludes them.
		 */
		ip->tot_len = bpf_htons(40);
		ip->check = fold(sum - bpf_htons(FRAME_BYTES - ETH_HLEN) + bpf_htons(40));
		tcp->check = fold(words_of(ip->saddr) + words_of(ip->daddr) + bpf_htons(IPPROTO_TCP) + bpf_htons(20) +
				  ports[0] + ports[1] + words_of(tcp->seq) + words_of(tcp->ack_seq) + ports[6] +
				  tcp->window);
	} else {
		ports[2] = bpf_htons(FRAME_BYTES - ETH_HLEN - sizeof(*ip));
		ports[3] = 0;
	}
	return XDP_TX;
}

/* Drops frames on arrival, so that a run measures only the generation and delivery of frames. */
SEC("xdp")
int stop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* Neighbour discovery and other packets of IPv6 have other addresses. */
static __always_inline bool is_injected_ipv6(struct __sk_buff *skb)
{
	__u8 *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip = (void *)(data + sizeof(struct ethhdr));

	return skb->protocol == bpf_htons(ETH_P_IPV6) && (void *)(ip + 1) <= (void *)data_end &&
	       ip->daddr.in6_u.u6_addr32[0] == bpf_htonl(IPV6_NETWORK);
}

static __always_inline int receive(struct __sk_buff *skb, __u32 sink)
{
	__u32 first = 0;
	struct plan *plan = bpf_map_lookup_elem(&plans, &first);

	if (!plan)
		return TC_ACT_UNSPEC;
	if (plan->ipv6 ? !is_injected_ipv6(skb) : skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	__sync_fetch_and_add(&plan->received[sink], 1);
	return TC_ACT_SHOT;
}

SEC("tc")
int sink_server(struct __sk_buff *skb)
{
	return receive(skb, 0);
}

SEC("tc")
int sink_client(struct __sk_buff *skb)
{
	return receive(skb, 1);
}

/* An empty BPF program. The cost of this program is the minimum cost of any BPF program at this hook. */
SEC("tc")
int empty(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

#define CACHE_LINES 32768

struct cache_line {
	__u64 words[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CACHE_LINES);
	__type(key, __u32);
	__type(value, struct cache_line);
} cache_lines SEC(".maps");

/* Reads and writes one cache line per flow, at a random position. The cost of this BPF program is the minimum
 * cost of any flow table.
 */
SEC("tc")
int one_line(struct __sk_buff *skb)
{
	__u8 *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = (void *)(data + sizeof(struct ethhdr));
	struct cache_line *line;
	__u64 hash;
	__u32 at;

	if (data + FRAME_BYTES > data_end)
		return TC_ACT_UNSPEC;
	hash = ((__u64)ip->saddr << 32 | ip->daddr) ^ *(__u32 *)(ip + 1);
	hash *= 0x9e3779b97f4a7c15ULL;
	hash ^= hash >> 32;
	hash *= 0xd6e8feb86659fd93ULL;
	at = hash >> 40 & (CACHE_LINES - 1);
	line = bpf_map_lookup_elem(&cache_lines, &at);
	if (line)
		line->words[0] += 1;
	return TC_ACT_UNSPEC;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} replayed SEC(".maps");

/* Writes the next five-tuple into the packet of a test run, and tail-calls the BPF program that is
 * measured.
 */
SEC("tc")
int replay(struct __sk_buff *skb)
{
	__u8 *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = (void *)(data + sizeof(struct ethhdr));
	__be16 *ports = (void *)(ip + 1);
	__u32 first = 0;
	struct plan *plan = bpf_map_lookup_elem(&plans, &first);
	struct tuple *tuple;

	if (!plan || data + FRAME_BYTES > data_end)
		return TC_ACT_SHOT;
	tuple = next_tuple(plan);
	if (!tuple)
		return TC_ACT_SHOT;
	ip->saddr = tuple->source;
	ip->daddr = tuple->destination;
	ports[0] = tuple->source_port;
	ports[1] = tuple->destination_port;
	bpf_tail_call(skb, &replayed, 0);
	return TC_ACT_SHOT;
}

/* Sets only the mark and priority that the guard (Weir's nftables rules) requires. The cost of this BPF
 * program is the minimum cost of any datapath with this guard.
 */
SEC("tc")
int mark(struct __sk_buff *skb)
{
	skb->mark |= 0x00100000;
	skb->priority = PRIORITY_PASSED;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_H
#define WEIR_SPLICE_H

/* Splicing offload. The service plane terminates two TCP connections for each one that it inspects. Once a
 * connection is decided by its metadata, and both sides are at rest for a moment, the service plane leaves
 * it. Its packets are then forwarded in the kernel, with the sequence numbers of one connection translated
 * to those of the other (splice_start.h creates the entries). User space removes the entries. If the
 * process of an entry is gone, nothing is forwarded: the connection is reset on both sides.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, JOINS);
	__type(key, struct join_key);
	__type(value, struct join);
} joins SEC(".maps");

/* Deadline of each joiner (a thread of the service plane) on the monotonic clock. The thread renews it
 * while it lives.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, JOINERS);
	__type(key, __u32);
	__type(value, __u64);
} joiners SEC(".maps");

#define TCP_SOURCE_PORT 0
#define TCP_SEQUENCE 4 /* offsets in the TCP header, in bytes */
#define TCP_ACKNOWLEDGMENT 8
#define TCP_FLAGS 12
#define TCP_WINDOW 14
#define TCP_CHECKSUM 16
#define TCP_OPTIONS 20
#define TCP_HEADER_MAX 60
#define TCP_OPTION_SACK 5
#define TCP_OPTION_TIMESTAMPS 8
#define USUAL_TIMESTAMPS 0x0101080a /* two NOPs, the kind and the length */
#define SACK_EDGES 8

/* A TCP header before and after translation. */
struct headers {
	__u8 before[64];
	__u8 after[64];
	__u32 length; /* length of its options */
	__u32 reserved;
};

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headers);
} headers SEC(".maps");

static __always_inline struct join_key key_of(const struct packet *packet)
{
	return (struct join_key){ packet->source, packet->destination, packet->source_port, packet->destination_port };
}

/* The key of the other direction. */
static __always_inline struct join_key reverse_key_of(const struct packet *packet)
{
	return (struct join_key){ packet->destination, packet->source, packet->destination_port, packet->source_port };
}

static __always_inline struct join *join_of(const struct packet *packet)
{
	struct join_key key = key_of(packet);

	return bpf_map_lookup_elem(&joins, &key);
}

static __always_inline struct join *reverse_join_of(const struct packet *packet)
{
	struct join_key key = reverse_key_of(packet);

	return bpf_map_lookup_elem(&joins, &key);
}

static __always_inline bool is_vouched_for(const struct join *join, __u64 now)
{
	__u32 joiner = join->joiner;
	__u64 *until = bpf_map_lookup_elem(&joiners, &joiner);

	return until && now < READ_ONCE(*until);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_H
#define WEIR_SPLICE_H

/* Splicing offload: the datapath forwards a decided connection itself. For each connection that it inspects,
 * the service plane has two TCP connections, one to each peer. After the service plane has decided the
 * connection by its metadata, it waits until both TCP connections are at rest: no data is unread or
 * unacknowledged. At this moment the service plane closes its sockets, and from then on the datapath forwards
 * the packets. The datapath translates the sequence numbers of one TCP connection to those of the other.
 *
 * The map `joins` has two entries for each spliced connection, one for each direction. User space adds and
 * removes the entries, and `start_splice` fills in the numbers. If the process that owns an entry has ended,
 * the datapath resets the connection on both sides instead of forwarding.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, JOINS);
	__type(key, struct join_key);
	__type(value, struct join);
} joins SEC(".maps");

/* For each splice thread: the time of the monotonic clock until which the datapath forwards the
 * connections of that thread. The thread renews its deadline while it runs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, JOINERS);
	__type(key, __u32);
	__type(value, __u64);
} joiners SEC(".maps");

#define TCP_SOURCE_PORT 0
#define TCP_SEQUENCE 4 /* byte offsets of fields in the TCP header, also in the next lines */
#define TCP_ACKNOWLEDGMENT 8
#define TCP_FLAGS 12
#define TCP_WINDOW 14
#define TCP_CHECKSUM 16
#define TCP_OPTIONS 20
#define TCP_HEADER_MAX 60
#define TCP_OPTION_SACK 5
#define TCP_OPTION_TIMESTAMPS 8
/* Two NOPs, then kind and length of the time stamps option: the usual layout, which needs no search */
#define USUAL_TIMESTAMPS 0x0101080a
#define SACK_EDGES 8

/* A TCP header before and after the translation of its numbers. */
struct headers {
	__u8 before[64];
	__u8 after[64];
	__u32 length; /* number of bytes of TCP options */
	__u32 reserved;
};

/* Per-CPU buffer for one TCP header: it does not fit on the BPF stack of 512 bytes. */
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

/* Returns the key of the entry in `joins` for the opposite direction of a packet. */
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

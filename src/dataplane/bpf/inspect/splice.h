/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_SPLICE_H
#define WEIR_SPLICE_H

/* Splicing offload: the datapath itself forwards the packets of a connection that the service plane has
 * decided. For each connection that it inspects, the service plane has two TCP connections, one to each peer.
 * After the policy has decided the connection by its metadata, the service plane waits until both TCP
 * connections are at rest: no data is unread or unacknowledged. At this moment the service plane closes its
 * sockets, and the datapath begins to forward the packets. The datapath translates the sequence numbers of
 * one TCP connection to those of the other.
 *
 * The map `joins` has two entries for each spliced connection, one for each direction. User space adds and
 * removes the entries, and `start_splice` fills in the numbers. `is_spliced` also removes entries, if the
 * connection has ended. If the process that owns an entry has ended, the datapath resets the connection on
 * both sides instead of forwarding.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, JOINS);
	__type(key, struct join_key);
	__type(value, struct join);
} joins SEC(".maps");

/* The deadline of each splice thread, as a time of the monotonic clock. The datapath forwards the connections
 * of a thread until its deadline. The thread renews its deadline while it runs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, JOINERS);
	__type(key, __u32);
	__type(value, __u64);
} joiners SEC(".maps");

/* TCP_SOURCE_PORT to TCP_OPTIONS are byte offsets in the TCP header. */
#define TCP_SOURCE_PORT 0
#define TCP_SEQUENCE 4
#define TCP_ACKNOWLEDGMENT 8
#define TCP_FLAGS 12
#define TCP_WINDOW 14
#define TCP_CHECKSUM 16
#define TCP_OPTIONS 20
#define TCP_HEADER_MAX 60
#define TCP_OPTION_SACK 5
#define TCP_OPTION_TIMESTAMPS 8
/* The first four bytes of the TCP options in their usual layout: two NOPs, then kind and length of the time
 * stamps option. With this layout, `translate` does not search for the option.
 */
#define USUAL_TIMESTAMPS 0x0101080a
#define SACK_EDGES 8

/* A TCP header before and after the translation of its numbers. */
struct headers {
	__u8 before[64];
	__u8 after[64];
	__u32 length; /* number of bytes of TCP options */
	__u32 reserved;
};

/* Per-CPU buffer for two copies of a TCP header, before and after translation. The buffer has 136 bytes,
 * which is more than the calling functions leave of the BPF stack (512 bytes).
 */
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

/* Returns the key of the entry in `joins` for the direction opposite to this packet. */
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

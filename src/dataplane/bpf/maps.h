/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#define WAYS 4096

/* Where max_entries is 1, the loader sets the size. */

/* Two slots. The loader sets the number of lines of one slot as the value size, so a line is reached by
 * adding to the address of the first line.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct line));
} program SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct active);
} active SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLOW_WAYS);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLOW_WAYS);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* One word of tags for each set of `flows`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} flow_tags SEC(".maps");

/* Next hops; many flows share one. The loader keeps one entry where packets are never sent directly. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* Results of the fast path for a packet that it left to the full path. */
struct prefetched {
	__u32 list;        /* line of the rule list of the source; 0: not looked up */
	__u32 active_word; /* active word that `list` and `word` belong to */
	__u32 word;        /* verdict word; 0: not decided yet */
	__u32 ifindex;     /* outgoing interface by the copied routes; 0: they do not know it */
	bool has_asked;    /* whether the copied routes were searched */
};

/* Key of the flow of a packet, and its direction. `stateful` is false for a packet that neither opens a
 * flow nor belongs to one.
 */
struct place {
	struct flow_key key;
	bool stateful;
	bool from_high;
	bool icmp_reply;
	__u32 slot; /* slot that was claimed for a new flow */
	__u64 hash; /* hash of the key */
};

/* Host byte order. Ports are 0 where the protocol has none. */
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
	__u16 id;
	__u16 fragment_field;
	__u16 header;  /* bytes of the IPv4 header */
	__u16 payload; /* bytes behind the IPv4 header */
	bool outgoing;
	bool has_no_flow; /* an earlier lookup found no flow */
	bool is_reply;    /* of a packet that an ICMP error quotes: it was a reply in its flow */
	struct prefetched foreseen;
	struct place place;
	struct way way;
};

/* Not on the stack, which holds 512 bytes for all functions of a call chain. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct packet);
} packets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct fragment_key);
	__type(value, struct fragments);
} fragments SEC(".maps");

/* An empty datagram, the template for new entries: it is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fragments);
} no_fragments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hit);
} hits SEC(".maps");

/* Indexed by rank, for each slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct hit_ref);
} rank_hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vitals);
} vitals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SHARES);
	__type(key, __u32);
	__type(value, __u32);
} flow_shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

struct budget {
	__u32 window;
	__u32 denied;
	__u32 opened;
	__u32 suppressed;
};

#define BUDGETS 4096
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUDGETS);
	__type(key, __u32);
	__type(value, struct budget);
} budgets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

/* The programs of the predecessor datapath, by hook. The kernel clears this map when it is neither pinned
 * nor open.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PREDECESSORS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} predecessors SEC(".maps");

/* JSON that describes the keys and values of these maps, for the next process. No program reads it. */
struct layouts {
	char text[32 << 10];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct layouts);
} layouts SEC(".maps");

struct sweep_timer {
	struct bpf_timer timer;
	__u32 next; /* set where the next run starts */
	__u32 flows;
	__u32 half_open;
	__u32 reserved;
	__u64 took_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sweep_timer);
} sweep SEC(".maps");

/* A section of its own: the compiler puts its own tables into .rodata. */
const volatile struct settings settings SEC(".rodata.settings") = {};

/* Only for their types: they are not in the BTF of the object otherwise, where a test reads them. */
const struct event event_layout SEC(".layout") = {};
const enum verdict verdict_numbers SEC(".layout") = VERDICT_ALLOW;
const enum priority priority_numbers SEC(".layout") = PRIORITY_PASSED;
const enum flow_state state_numbers SEC(".layout") = FLOW_TCP_SYN_SENT;

#endif

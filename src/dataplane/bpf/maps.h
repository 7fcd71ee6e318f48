/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#define WAYS 2048

/* If the size of a map depends on the configuration, its `max_entries` in this file is a placeholder: the
 * loader sets the real size.
 */

/* The program slots, each for one compiled policy. The loader sets the size of one map value to the size of a
 * whole program slot. So one map lookup returns the first cache line, and the BPF programs compute the
 * addresses of the other cache lines. The map has a third slot from the first time on that a policy is staged
 * while a slot keeps the base of an unconfirmed policy (revert.h).
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

/* One 64-bit tag word (the tags of eight ways) for each flow set of `flows`; see flow_table.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} flow_tags SEC(".maps");

/* Next hops for direct forwarding. Many flows refer to one entry, so the next hops in use stay in the CPU
 * caches. If direct forwarding is off, the loader creates only one entry, to save memory.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* Results that the fast path found before it left a packet to the full path. The full path uses the
 * results instead of searching again.
 */
struct prefetched {
	__u32 list;        /* cache line of the rules that apply to the source; 0: not searched */
	__u32 active_word; /* active word (epoch and program slot) that `list` and `word` belong to */
	__u32 word;        /* the rule and verdict as a number; 0: not decided */
	__u32 ifindex;     /* outgoing interface according to the copied routes; 0: the kernel must look up the route */
	bool has_asked;    /* true if the fast path searched the copied routes */
	__u16 member_changes; /* result of `count_of_changes` before the search for `list` or the verdict; 0: not read */
};

/* The flow key of a packet, and its direction. `stateful` is false if the packet neither opens a flow nor
 * belongs to a flow. `from_high` is true if the packet comes from the higher address and port of the key.
 */
struct place {
	struct flow_key key;
	bool stateful;
	bool from_high;
	bool icmp_reply;
	__u32 slot; /* flow slot that this CPU has claimed for a new flow */
	__u64 hash; /* hash of `key` */
};

/* The addresses and ports of a packet after NAT by the network stack, in host byte order. */
struct translated {
	address_t source;
	address_t destination;
	__u32 ports; /* source port << 16 | destination port */
	bool is_sent;  /* the ingress hook may write these fields to the header, and send the packet directly */
	bool is_reply; /* the packet is from the side that did not open the connection */
};

/* The fields of a packet that the datapath needs, in host byte order. The ports are 0 if the protocol has
 * no ports.
 */
struct packet {
	address_t source;
	address_t destination;
	__u16 source_port;
	__u16 destination_port;
	__u16 icmp_id;
	__u8 protocol;
	__u8 tcp_flags;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 tos;
	__u8 fragment;
	fragment_id_t id;
	__u16 fragment_field; /* offset and flags of a fragment, in the format of an IPv4 header */
	__u16 header;  /* length of the IP header, in bytes */
	__u16 unfragmented; /* length of the headers up to a fragment header of IPv6, in bytes; each fragment has them */
	__u16 payload; /* number of bytes after the IP header */
	__u32 sequence;       /* sequence number of a TCP packet */
	__u32 acknowledgment; /* acknowledgment number of a TCP packet */
	__u32 data;           /* number of payload bytes of a TCP packet, also of merged segments */
	bool outgoing;
	bool has_no_flow; /* true if the fast path has searched the flow table without success */
	bool is_reply;    /* for a packet that an ICMP error quotes: the quoted packet is a reply in its flow */
	bool is_translated; /* `destination` is the destination after DNAT; `wire` has the destination in the header */
	bool is_nat_reply;  /* only with `is_translated`: the packet is from the side that did not open the connection */
	bool is_quoted;   /* true in packet buffer 1 if the forward judge (a netfilter program) has read a quoted packet into it */
	bool sends_translated; /* the ingress hook writes `translated` to the header, and sends the packet directly */
	bool has_real_flow; /* conntrack and a flow with the address after DNAT show that a TCP packet belongs to a connection */
	struct prefetched prefetched;
	struct place place;
	struct way way;
	struct {
		struct flow_key key;
		address_t destination;
		__u16 port;
		bool from_high;
	} wire;
	struct translated translated;
};

/* Two per-CPU packet buffers: one for the packet, and one for the packet that an ICMP error quotes. A
 * struct packet on the stack would leave too little of the 512 bytes that all functions of a call chain
 * share.
 */
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

/* One entry of zeros, the template for new entries of `fragments`. The BPF stack of 512 bytes is too small to
 * build an entry of that size.
 */
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

/* Maps a program slot and a rank (the place of a rule or default in the policy) to an entry of `hits`, where
 * the packets that the rule decides are counted. The index is the rank, plus `rank_capacity` times the
 * program slot.
 */
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

/* The BPF programs of the predecessor datapath (upgrade/handover.h), indexed by enum predecessor. The kernel
 * clears a map of this type when no process has the map open and no pin keeps the map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PREDECESSORS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} predecessors SEC(".maps");

/* The layouts of all maps of this datapath as JSON. The next process compares them with its own layouts to
 * decide which maps both datapaths can share, and converts flows, fragments and hits of the other maps. No
 * BPF program reads the text.
 */
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
	__u32 next; /* flow set where the next run of the sweep starts */
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

/* The timer that puts the base of an unconfirmed policy in force again (revert.h). */
struct revert {
	struct bpf_timer timer;
	__u64 at_ns;       /* the deadline, by the monotonic clock; 0: no policy waits for a confirmation */
	__u64 reverted_ns; /* the time when the timer put that policy in force; 0: it has not */
	__u32 slot;        /* the program slot with the last confirmed policy */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct revert);
} revert SEC(".maps");

/* The settings have a section of their own, because the compiler adds its own tables to .rodata. */
const volatile struct settings settings SEC(".rodata.settings") = {};

/* These constants exist only so that the BTF of the object contains their types. A test compares the types
 * with the encoders of user space.
 */
const struct event event_layout SEC(".layout") = {};
const enum event_type event_numbers SEC(".layout") = EVENT_FLOW_OPENED;
const enum verdict verdict_numbers SEC(".layout") = VERDICT_ALLOW;
const enum priority priority_numbers SEC(".layout") = PRIORITY_PASSED;
const enum flow_state state_numbers SEC(".layout") = FLOW_TCP_SYN_SENT;

#endif

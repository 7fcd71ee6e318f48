/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Structs and numbers that the datapath of layout 1 shared with user space. In its time, a test compared
 * them with the encoders by the BTF of the object, and a change of a struct needed a higher
 * LAYOUT_VERSION.
 */
#ifndef WEIR_H
#define WEIR_H

#define LAYOUT_VERSION 1

/* A program image consists of cache lines; src/dataplane/image/program-image.ts describes its layout. */
#define LINE_WORDS 16
#define IMAGE_MAGIC 0x52494557 /* "WEIR" in ASCII */

enum verdict {
	VERDICT_ALLOW = 1,
	VERDICT_DENY = 2,
	VERDICT_AUDIT = 3,
	VERDICT_REDIRECT = 4,
};

/* The names and numbers of drop reasons appear in metrics: never reuse a number. */
enum drop_reason {
	DROP_NONE = 0,
	DROP_MALFORMED = 1,            /* a header has a wrong value, or the packet ends inside a header */
	DROP_NON_IPV4 = 2,
	DROP_VLAN_TAGGED = 3,
	DROP_FRAGMENT = 4,
	DROP_SPOOFED_SOURCE = 5,
	DROP_NO_POLICY = 6,            /* no policy was ever activated */
	DROP_POLICY_DENY = 7,
	DROP_SERVICE_PLANE_ABSENT = 8, /* the verdict is redirect, and no service plane runs */
	DROP_OUT_OF_STATE = 9,         /* a TCP packet that has no flow and is not a SYN */
	DROP_FLOW_TABLE_FULL = 10,
	DROP_GUARD = 11,               /* the nftables guard counts this drop reason, not the datapath */
	DROP_PROGRAM_DAMAGED = 12,     /* an index in the program image is out of bounds */
	DROP_REASONS = 13,
};

/* Counters of packets and flows. Each packet increments exactly one of allow, audit, to_node, arp,
 * non_ipv4, and the drop reasons.
 */
enum counter_index {
	COUNT_ALLOW = 1,
	COUNT_AUDIT = 2,
	COUNT_TO_NODE = 3,
	COUNT_ARP = 4,
	COUNT_NON_IPV4 = 5,
	COUNT_FLOWS_OPENED = 8,
	COUNT_FLOWS_CLOSED = 9,
	COUNT_FLOWS_REJUDGED = 10,
	COUNT_DROPS = 32, /* the index of a drop counter is COUNT_DROPS + drop reason */
	COUNTERS = 96,
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

enum reverse_path {
	REVERSE_PATH_OFF = 0,
	REVERSE_PATH_LOOSE = 1,
	REVERSE_PATH_STRICT = 2,
};

/* The configuration of the datapath: read-only data of the BPF programs, which the loader writes before it
 * loads the programs.
 */
struct settings {
	__u32 slot_lines;
	__u32 mark_mask;
	__u32 guard_bit;
	enum reverse_path reverse_path;
	__u8 pass_non_ipv4;
	__u8 judge_all;  /* for tests: treats every packet as forwarded, and every source as valid */
	__u8 trace_word; /* for tests: stores the verdict word of a packet in skb->cb[0] */
	__u8 reserved;
};

/* `word` is the active word, epoch << 1 | program slot; 0: no policy was ever activated. User space
 * changes `word` by one store, and the datapath reads `word` once per packet.
 */
struct active {
	__u32 word;
	__u32 layout_version;
	__u64 pickup_until_ns;
};

struct line {
	__u32 words[LINE_WORDS];
};

/* The key of a flow. Packets of both directions give the same key, because the lower (address, port)
 * always comes first. Host byte order.
 */
struct flow_key {
	__u32 low_address;
	__u32 high_address;
	__u16 low_port;
	__u16 high_port;
	__u8 protocol;
	__u8 kind; /* for ICMP: query class << 1 | 1 if the high address sends the queries, so that queries of the two sides are different flows */
	__u16 reserved;
};

enum flow_state {
	FLOW_UNREPLIED = 1,
	FLOW_REPLIED = 2,
	FLOW_CLOSING = 3,
};

/* A flow. It repeats its key at the start, because the kernel can reuse the memory of a deleted map entry
 * immediately. A CPU with an old pointer reads `judgement` and then compares the key: the writer of a new
 * flow changes the key before `judgement`.
 */
struct flow {
	struct flow_key key;
	__u64 judgement; /* epoch << 32 | verdict word, written by one store, so that a reader never sees an old and a new half */
	__u64 last_seen_ns;
	__u64 opened_ns;
	__u64 packets[2]; /* index 0: packets from the side that opened the flow; index 1: replies */
	__u64 bytes[2];
	__u32 ifindex[2]; /* interface where packets of each direction come in, after a check of the source */
	__u8 state;
	__u8 opened_by_high;
	__u8 fins; /* one bit for each direction in which a FIN passed */
	__u8 reserved[5];
};

struct bench_request {
	__u32 slot;
	__u32 count;
	__u32 seed;
	__u32 keys_only; /* 1: only computes the random keys, to measure their cost without a lookup */
	__u32 source_base;
	__u32 source_mask;
	__u32 destination_base;
	__u32 destination_mask;
	__u32 leaf_key_base;
	__u32 leaf_key_mask;
	__u32 checksum;
	__u32 reserved;
	__u64 elapsed_ns;
};

_Static_assert(sizeof(struct line) == 64, "a line is a cache line");
_Static_assert(sizeof(struct active) == 16, "active is mapped by user space");
_Static_assert(sizeof(struct flow_key) == 16, "no padding in a hash key");
_Static_assert(sizeof(struct flow) == 88, "no padding in a flow");

#endif

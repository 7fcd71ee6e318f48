/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Layouts and numbers shared with user space. A test compared them with the encoders by the object's BTF. A
 * change of a struct needs a higher LAYOUT_VERSION.
 */
#ifndef WEIR_H
#define WEIR_H

#define LAYOUT_VERSION 1

/* An image is made of lines of one cache line each; see src/dataplane/image/program-image.ts. */
#define LINE_WORDS 16
#define IMAGE_MAGIC 0x52494557 /* "WEIR" */

enum verdict {
	VERDICT_ALLOW = 1,
	VERDICT_DENY = 2,
	VERDICT_AUDIT = 3,
	VERDICT_REDIRECT = 4,
};

/* Names and numbers are part of the metrics: append, never reuse. */
enum drop_reason {
	DROP_NONE = 0,
	DROP_MALFORMED = 1,            /* a header is wrong, or ends before the packet does */
	DROP_NON_IPV4 = 2,
	DROP_VLAN_TAGGED = 3,
	DROP_FRAGMENT = 4,
	DROP_SPOOFED_SOURCE = 5,
	DROP_NO_POLICY = 6,            /* no program was ever activated */
	DROP_POLICY_DENY = 7,
	DROP_SERVICE_PLANE_ABSENT = 8, /* the verdict is redirect, and nobody inspects */
	DROP_OUT_OF_STATE = 9,         /* TCP that opens nothing and has no flow */
	DROP_FLOW_TABLE_FULL = 10,
	DROP_GUARD = 11,               /* counted by netfilter, not by the program */
	DROP_PROGRAM_DAMAGED = 12,     /* the image leads out of itself */
	DROP_REASONS = 13,
};

/* Every packet is counted at exactly one of: allow, audit, to_node, arp, non_ipv4, or a drop. */
enum counter_index {
	COUNT_ALLOW = 1,
	COUNT_AUDIT = 2,
	COUNT_TO_NODE = 3,
	COUNT_ARP = 4,
	COUNT_NON_IPV4 = 5,
	COUNT_FLOWS_OPENED = 8,
	COUNT_FLOWS_CLOSED = 9,
	COUNT_FLOWS_REJUDGED = 10,
	COUNT_DROPS = 32, /* + drop_reason */
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

/* Read-only data of the program, written before it is loaded. */
struct settings {
	__u32 slot_lines;
	__u32 mark_mask;
	__u32 guard_bit;
	enum reverse_path reverse_path;
	__u8 pass_non_ipv4;
	__u8 judge_all;  /* tests: every packet counts as forwarded, from where it says */
	__u8 trace_word; /* tests: the word that decided is left in cb[0] */
	__u8 reserved;
};

/* `word` is epoch << 1 | slot; 0 is: never activated. It is changed by one store and read once a packet. */
struct active {
	__u32 word;
	__u32 layout_version;
	__u64 pickup_until_ns;
};

struct line {
	__u32 words[LINE_WORDS];
};

/* Both directions of a flow have one key: the lower (address, port) comes first. Host byte order. */
struct flow_key {
	__u32 low_address;
	__u32 high_address;
	__u16 low_port;
	__u16 high_port;
	__u8 protocol;
	__u8 kind; /* ICMP: query class << 1 | asked by the high side, so that each side's queries are their own flows */
	__u16 reserved;
};

enum flow_state {
	FLOW_UNREPLIED = 1,
	FLOW_REPLIED = 2,
	FLOW_CLOSING = 3,
};

/* The key is repeated at the start, because the kernel reuses the memory of a deleted entry at once. A CPU
 * with an old pointer reads `judgement` and then compares the key, which the next owner writes earlier.
 */
struct flow {
	struct flow_key key;
	__u64 judgement; /* epoch << 32 | word: one store, so that nobody sees half of it */
	__u64 last_seen_ns;
	__u64 opened_ns;
	__u64 packets[2]; /* 0: from the side that opened the flow */
	__u64 bytes[2];
	__u32 ifindex[2]; /* where packets of that direction come in, once their source was checked */
	__u8 state;
	__u8 opened_by_high;
	__u8 fins; /* one bit a direction */
	__u8 reserved[5];
};

struct bench_request {
	__u32 slot;
	__u32 count;
	__u32 seed;
	__u32 keys_only; /* makes the keys and looks nothing up */
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

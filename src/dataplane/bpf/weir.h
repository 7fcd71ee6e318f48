/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Layouts and numbers shared with user space. src/dataplane/abi/ and src/contracts/datapath-numbers.ts
 * encode and decode them; a test compares both sides through the BTF of the object. A change of a struct
 * needs a higher LAYOUT_VERSION.
 */
#ifndef WEIR_H
#define WEIR_H

#define LAYOUT_VERSION 6

/* An image consists of lines of one cache line each; see src/dataplane/image/program-image.ts. */
#define LINE_WORDS 16
#define IMAGE_MAGIC 0x52494557 /* "WEIR" */

enum verdict {
	VERDICT_ALLOW = 1,
	VERDICT_DENY = 2,
	VERDICT_AUDIT = 3,
	VERDICT_REDIRECT = 4,
};

/* Names and numbers are part of the metrics: append, never reuse a number. */
enum drop_reason {
	DROP_NONE = 0,
	DROP_MALFORMED = 1,            /* a header is wrong, or the packet ends inside a header */
	DROP_NON_IPV4 = 2,
	DROP_VLAN_TAGGED = 3,
	DROP_FRAGMENT = 4,             /* the first fragment was not seen, or was dropped */
	DROP_SPOOFED_SOURCE = 5,
	DROP_NO_POLICY = 6,            /* no program was ever activated */
	DROP_POLICY_DENY = 7,
	DROP_SERVICE_PLANE_ABSENT = 8, /* the verdict is redirect, and no service plane runs */
	DROP_OUT_OF_STATE = 9,         /* TCP that has no flow and is not a SYN */
	DROP_FLOW_TABLE_FULL = 10,
	DROP_GUARD = 11,               /* counted by netfilter, not by the program */
	DROP_PROGRAM_DAMAGED = 12,     /* an index in the image is out of bounds */
	DROP_TCP_FLAGS = 13,           /* a combination of flags that no TCP sends */
	DROP_FRAGMENT_OVERLAP = 14,
	DROP_FRAGMENT_TINY = 15,       /* a first fragment that ends before its ports or TCP flags */
	DROP_ICMP_REDIRECT = 16,
	DROP_SOURCE_ROUTE = 17,        /* an IP option for source routing */
	DROP_DNS_PROXY_ABSENT = 18,    /* DNS lookups are diverted, and no DNS proxy listens */
	DROP_NOT_INSPECTED = 19,       /* the verdict is redirect, but the connection was opened without the service plane */
	DROP_NODE_UNINSPECTED = 20,    /* the verdict is redirect, and one end is the node itself */
	DROP_LOOPBACK = 21,            /* one end is in 127.0.0.0/8 */
	DROP_FLOW_SHARE = 22,          /* the table is more than half full, and the source has reached its share of it */
	DROP_REASONS = 23,
};

/* Each incoming packet is counted exactly once: as allow, audit, to_node, arp, non_ipv4, foreign, diverted,
 * inspected, joined, or a drop. Each outgoing packet that was not classified at ingress is counted exactly
 * once: as allow, audit, from_node, arp, non_ipv4, foreign, or a drop.
 */
enum counter_index {
	COUNT_ALLOW = 1,
	COUNT_AUDIT = 2,
	COUNT_TO_NODE = 3,
	COUNT_ARP = 4,
	COUNT_NON_IPV4 = 5,
	COUNT_FOREIGN = 6,
	COUNT_FROM_NODE = 7,
	COUNT_FLOWS_OPENED = 8,  /* flows that became established */
	COUNT_FLOWS_CLOSED = 9,  /* established flows that ended */
	COUNT_FLOWS_REJUDGED = 10,
	COUNT_HALF_OPENED = 11,  /* flows that a first packet opened */
	COUNT_ICMP_RELATED = 12, /* ICMP errors that quote a flow; also counted as allow or audit */
	COUNT_DIVERTED = 13,     /* handed to the DNS proxy */
	COUNT_INSPECTED = 14,    /* handed to the service plane */
	COUNT_JOINED = 15,       /* packets of spliced TCP connections (splice.h) */
	COUNT_EVENTS = 16,
	COUNT_EVENTS_LOST = 17,       /* the ring buffer was full */
	COUNT_EVENTS_SUPPRESSED = 18, /* the source had used up its budget of events */
	COUNT_DROPS = 32,             /* + drop_reason */
	COUNTERS = 96,
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* Values of skb->priority that the ingress hook sets beside the mark. The guard's chain `marks` sets the
 * bits of the mark from the priority: conntrack can restore the mark of an earlier packet, but no priority.
 * The lowest four bits are 0 (best effort) for queueing disciplines. The kernel's ip_forward overwrites the
 * value.
 */
enum priority {
	PRIORITY_PASSED = 0x77656900,
	PRIORITY_REDIRECTED = 0x77656910,
};

enum reverse_path {
	REVERSE_PATH_OFF = 0,
	REVERSE_PATH_LOOSE = 1,
	REVERSE_PATH_STRICT = 2,
};

/* Numbers are kept across layouts, like those of verdicts and drop reasons. */
enum flow_state {
	FLOW_TCP_SYN_SENT = 1,
	FLOW_TCP_SYN_RECEIVED = 2,
	FLOW_TCP_ESTABLISHED = 3,
	FLOW_TCP_HALF_CLOSED = 4,
	FLOW_TCP_CLOSING = 5,
	FLOW_TCP_RESET = 6,
	FLOW_UDP_OPENED = 7,
	FLOW_UDP_REPLIED = 8,
	FLOW_ICMP_OPENED = 9,
	FLOW_ICMP_REPLIED = 10,
	FLOW_OTHER_OPENED = 11,
	FLOW_OTHER_REPLIED = 12,
	FLOW_STATES = 16,
};

/* Read-only data of the program, written before it is loaded. */
struct settings {
	__u32 slot_lines;
	__u32 mark_mask;
	__u32 guard_bit;
	__u32 exempt_bit; /* mark bit of the node's own sockets whose packets are not classified */
	enum reverse_path reverse_path;
	__u32 rank_capacity; /* entries of `rank_hits` in each slot */
	__u32 hit_capacity;
	__u32 flow_seed;  /* seed of the hash that selects the sets of a flow */
	__u32 deny_events;  /* limit of events per second, source and CPU: for denied and dropped packets */
	__u32 flow_events;  /* the same limit, for flows */
	__u32 timeouts[FLOW_STATES]; /* by state, in ticks */
	__u32 plane_address; /* address of the service plane's listener, host byte order */
	__u32 plane_port;    /* its port; 0: there is no service plane */
	__u32 share_scale;   /* part of the free table that one source may use, times 1 << SHARE_SHIFT (flow_share.h) */
	__u32 share_from;    /* half of the capacity: with fewer established flows, no source has a limit */
	__u8 pass_non_ipv4;
	__u8 police_local;
	__u8 judge_all;  /* tests: treats every packet as forwarded, and its source as valid */
	__u8 trace_word; /* tests: stores the verdict word in skb->cb[0] */
	__u8 direct;     /* allowed packets may be sent directly, without the stack */
	__u8 fib_flags;  /* flags of bpf_fib_lookup that this kernel supports */
	__u8 bridges;    /* this program runs beside its predecessor (handover.h) */
	__u8 flow_shift; /* log2 of the sets of `flows` */
	__u8 divert_dns; /* DNS lookups go to the DNS proxy, whatever server they address */
	__u8 copies_routes; /* copied_routes.h; needs Linux 6.2, where a program can read its network device */
	__u8 reserved[2];
};

enum events_wanted {
	EVENTS_WANTED_PACKETS = 1, /* events of single packets, and of flows that pass as audited */
	EVENTS_WANTED_FLOWS = 2,
};

/* `word` is epoch << 1 | slot; 0: no program was ever activated. User space changes it by one store, and
 * the datapath reads it once per packet.
 */
struct active {
	__u32 word;
	__u32 layout_version;
	__u64 pickup_until_ns;
	__u32 events_wanted; /* enum events_wanted; 0: no event is sent (D34) */
	__u32 reserved;
	__u64 direct_until_ns; /* with `direct`: allowed packets are sent directly until this time of the monotonic clock */
};

struct line {
	__u32 words[LINE_WORDS];
};

/* Both directions of a flow have the same key: the lower (address, port) comes first. Host byte order. */
struct flow_key {
	__u32 low_address;
	__u32 high_address;
	__u16 low_port;
	__u16 high_port;
	__u8 protocol;
	__u8 kind; /* ICMP: query class << 1 | query sent by the high side, so that the queries of each side are separate flows */
	__u16 use;
};

#define KEY_FREE 0    /* use: the line has no flow */
#define KEY_USED 1    /* the line has a flow; also the value in the key of each lookup */
#define KEY_CLAIMED 2 /* one CPU owns the line and writes it */

/* Times of flows are ticks of 2^20 ns of the monotonic clock. They wrap after 52 days and are compared by
 * their difference.
 */
#define TICK_SHIFT 20

#define FLOW_OPENED_BY_HIGH 1
#define FLOW_FOREIGN 2      /* opened from an interface without policy: only its replies are let in */
#define FLOW_RESET_BY_REPLY 4 /* the replying side sent the RST */
#define FLOW_HALF_OPEN 8    /* not yet confirmed by the other side */
#define FLOW_FIN 16         /* shifted left by the direction of the FIN */
#define FLOW_ENDING 64      /* until the line is reused: no flush begins, a running one ends the flow */
#define FLOW_FLUSHING 128    /* one CPU owns the tally now, and flushes the counters to it */

#define FLOW_WAYS 8

#define OPENED_SHIFT 23

/* The part of a flow that every packet touches; see flow_table.h. The line may get another flow at any
 * time: a holder of a pointer reads `judgement` and then compares the key, which the next owner writes
 * before `judgement`.
 */
struct flow {
	struct flow_key key;
	__u64 judgement;    /* active word << 32 | verdict word: one store, so that no reader sees half of it; 0: a foreign flow */
	__u32 last_seen;    /* ticks */
	__u8 state;
	__u8 flags;
	__u16 opened;       /* time of the first packet, in units of 2^OPENED_SHIFT ns; wraps after nine minutes */
	__u32 ifindex[2];   /* interface where packets of that direction come in: checked or, before the first, expected; 0: not known */
	__u32 packets[2];   /* index 0: from the side that opened the flow. They wrap, and are flushed before that */
	__u32 bytes[2];
	__u32 hops[2];      /* entry of `ways` for packets of that direction | time of its lookup << 16; 0: not known */
};

/* The rest of a flow, by the same index. A line without a flow has a tally of zeros, and a first packet
 * leaves it so: the first flush fills in the facts that follow from the flow (`complete_tally`).
 */
struct tally {
	__u64 opened_ns; /* 0: see `opened` of the flow */
	__u64 total_packets[2];  /* as of the last flush */
	__u64 total_bytes[2];
	__u32 folded_packets[2]; /* the flow's counters at the last flush: this part is in the totals and in the hits of a rule */
	__u32 folded_bytes[2];
	__u32 hit;               /* entry of `hits` that the flow counts for; 0: none */
	__u32 hit_check;         /* low word of that entry's identity; `hit` and `hit_check` both 0: follows from `judgement` */
};

/* Next hop of a packet, as the routes of the node give it. */
struct way {
	__u32 ifindex; /* 0: not known, or not forwarded */
	__u32 gateway; /* network byte order; 0: the destination itself */
	__u32 mtu;
	__u32 refreshed; /* ticks; an entry that was not refreshed lately is reused */
};

/* Packets, bytes and last hit of one rule, group default or policy default. User space gives each identity
 * an entry and keeps it across policies; entry 0 has no owner.
 */
struct hit {
	__u64 packets;
	__u64 bytes;
	__u64 last_ns; /* monotonic clock */
	__u64 identity;
};

/* The entry of `hits` that a verdict word counts for, and the low word of the identity of its owner. */
struct hit_ref {
	__u32 hit;
	__u32 check;
};

/* Results of the last sweep, and the number of established flows. */
struct vitals {
	__u64 swept_ns;
	__u64 sweep_took_ns;
	__u32 flows;
	__u32 half_open;
	__u32 flow_seed; /* seed by which the tables were filled */
	__u32 established; /* flows at this moment */
};

/* Reassembly state of one datagram: the ports of its first fragment for those that follow, and which units
 * of eight bytes were seen.
 */
struct fragment_key {
	__u32 source;
	__u32 destination;
	__u16 id;
	__u8 protocol;
	__u8 outgoing;
	__u32 ifindex; /* interface of its fragments: those of another interface must not change this entry */
};

#define FRAGMENT_UNITS 8192
struct fragments {
	__u64 opened_ns;
	__u32 packet_ports; /* source << 16 | destination; ICMP: type << 24 | code << 16 | id */
	__u32 units;        /* number of units seen so far */
	__u32 last_unit;    /* unit behind the end of the datagram; 0: not known */
	__u32 furthest;     /* unit behind the furthest fragment that was seen */
	__u64 seen[FRAGMENT_UNITS / 64];
};

/* Counters of established flows by a hash of the source that opened them. Two sources that share a counter
 * share the limit: a collision can refuse a flow too early, and never admits one too many.
 */
#define SHARES 65536
#define SHARE_SHIFT 16

enum event_type {
	EVENT_FLOW_OPENED = 1,
	EVENT_FLOW_ENDED = 2,
	EVENT_DENIED = 3,  /* by a verdict word of the policy */
	EVENT_DROPPED = 4, /* for another reason */
	EVENT_PASSED = 5,  /* allowed or audited, without a flow */
};

#define EVENT_AUDITED 1  /* flags */
#define EVENT_FOREIGN 2
#define EVENT_OUTGOING 4 /* seen at an egress hook */
#define EVENT_IPV6 8     /* dropped IPv6: addresses in `packets` (source) and `bytes` (destination) */
#define EVENT_CUT 16    /* of a flow that ended: by weir_cut */

/* Addresses and ports are those of the packet or, for a flow, of the packet that opened it. Host byte
 * order.
 */
struct event {
	__u64 time_ns; /* monotonic clock */
	__u8 type;
	__u8 verdict;
	__u8 drop_reason;
	__u8 protocol;
	__u32 ifindex;
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 tcp_flags; /* for a flow: enum flow_state */
	__u8 flags;
	__u32 epoch;
	__u32 word;
	__u32 hit;
	__u32 hit_check;
	__u32 suppressed; /* events of this source (or one with the same hash) that were not sent since the last event on this CPU */
	__u32 length;
	__u64 opened_ns;  /* for flows */
	__u64 packets[2]; /* for a flow that ended */
	__u64 bytes[2];
};

/* Number of packets that one run of weir_prove takes. */
#define PROOF_BATCH 8192

/* A packet to classify, and the resulting verdict word. */
struct proof_packet {
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 reserved;
	__u32 word;
	__u32 reserved2;
};

struct proof_request {
	__u32 slot;
	__u32 count;
};

#define JOINS 131072
#define JOINERS 64

/* Addresses and ports of the packets of one direction. Host byte order. */
struct join_key {
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
};

enum join_state {
	JOIN_QUIET = 1, /* the service plane still relays the bytes, and waits until both connections are at rest */
	JOIN_HELD = 2,  /* no packet passes */
	JOINED = 3,
};

/* Results of weir_join. */
enum joined {
	JOIN_AT_REST = 0, /* both connections are at rest, and their packets are held */
	JOIN_BUSY = 1,
	JOIN_GONE = 2,
	JOIN_UNABLE = 3, /* third-party hooks act on forwarded packets, and they track only one of the two connections */
};

/* Bits of `ends`. */
enum join_end {
	JOIN_ENDED = 1,
	JOIN_RESET = 2,
};

/* One direction of a spliced connection, or of one that is about to be spliced. Sequence numbers are in the
 * sender's space.
 */
struct join {
	enum join_state state;
	__u32 joiner;
	__u32 id; /* chosen and used by the joiner only */
	__u32 sequence; /* added to the sequence number of each packet; the next three likewise */
	__u32 acknowledgment;
	__u32 time;
	__u32 echo;
	__s32 window_shift; /* shift to the left */
	enum join_end ends;
	__u32 ifindex; /* interface where its packets come in, checked; 0: not known */
	__u32 hop;     /* as `hops` of struct flow */
	__u32 next;         /* sequence number behind the last byte that was sent */
	__u32 acknowledged; /* last acknowledgment number that was sent */
	__u32 window;       /* receive window of the sender when the connection was spliced, in bytes */
	__u32 stamp;        /* TCP time stamp of the sender at that moment */
	__u32 last_seen;    /* ticks */
};

enum predecessor {
	PREDECESSOR_INGRESS = 0,
	PREDECESSOR_EGRESS = 1,
	PREDECESSORS = 2,
};

/* Adds the counts of another datapath to a counter. */
struct carry_request {
	__u32 index;
	__u32 reserved;
	struct counter counter;
};

/* Copies a flow of another datapath into this one. */
struct carry_flow_request {
	struct flow flow;
	struct tally tally;
	__u32 half;    /* the flow is half open */
	__u32 carried; /* 0: the table is full, or the same flow was opened here meanwhile and now has its counts */
	__u32 again;   /* the flow was copied before, and the other datapath counted more packets since: adds them */
	__u32 vital;   /* state and flags of the first copy */
};

struct bench_request {
	__u32 slot;
	__u32 count;
	__u32 seed;
	__u32 keys_only; /* makes the keys without a lookup */
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
_Static_assert(sizeof(struct settings) == 132, "no padding in settings");
_Static_assert(sizeof(struct active) == 32, "active is mapped by user space");
_Static_assert(sizeof(struct proof_packet) == 24, "an array's values are a multiple of 8 bytes apart");
_Static_assert(sizeof(struct flow_key) == 16, "compared as two words");
_Static_assert(sizeof(struct flow) == 64, "a cache line");
_Static_assert(sizeof(struct tally) == 64, "a cache line");
_Static_assert(sizeof(struct way) == 16, "no padding in a way");
_Static_assert(sizeof(struct hit) == 32, "no padding in a hit");
_Static_assert(sizeof(struct hit_ref) == 8, "elements of an array stand eight bytes apart, or more");
_Static_assert(sizeof(struct vitals) == 32, "no padding in vitals");
_Static_assert(sizeof(struct fragment_key) == 16, "no padding in a hash key");
_Static_assert(sizeof(struct join_key) == 12, "no padding in a hash key");
_Static_assert(sizeof(struct join) == 64, "no padding in a join");
_Static_assert(sizeof(struct event) == 96, "no padding in an event");

#endif

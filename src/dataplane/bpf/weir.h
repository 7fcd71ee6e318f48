/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Layouts and numbers shared with user space. src/dataplane/abi/ and src/contracts/datapath-numbers.ts encode and decode them, and a test holds the
 * two together through the object's BTF. Whoever changes a struct raises LAYOUT_VERSION.
 */
#ifndef WEIR_H
#define WEIR_H

#define LAYOUT_VERSION 6

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
	DROP_FRAGMENT = 4,             /* its first fragment was not seen, or not let through */
	DROP_SPOOFED_SOURCE = 5,
	DROP_NO_POLICY = 6,            /* no program was ever activated */
	DROP_POLICY_DENY = 7,
	DROP_SERVICE_PLANE_ABSENT = 8, /* the verdict is redirect, and nobody inspects */
	DROP_OUT_OF_STATE = 9,         /* TCP that opens nothing and has no flow */
	DROP_FLOW_TABLE_FULL = 10,
	DROP_GUARD = 11,               /* counted by netfilter, not by the program */
	DROP_PROGRAM_DAMAGED = 12,     /* the image leads out of itself */
	DROP_TCP_FLAGS = 13,           /* no TCP sends this combination */
	DROP_FRAGMENT_OVERLAP = 14,
	DROP_FRAGMENT_TINY = 15,       /* a first fragment that ends before its ports or flags */
	DROP_ICMP_REDIRECT = 16,
	DROP_SOURCE_ROUTE = 17,        /* an IP option that says where to go */
	DROP_DNS_PROXY_ABSENT = 18,    /* lookups are taken over, and nobody answers them */
	DROP_NOT_INSPECTED = 19,       /* the verdict is redirect, and it is too late */
	DROP_NODE_UNINSPECTED = 20,    /* the verdict is redirect, and one end is the node itself */
	DROP_LOOPBACK = 21,            /* one end is in 127.0.0.0/8 */
	DROP_FLOW_SHARE = 22,          /* its source has its share of a table that is more than half full */
	DROP_REASONS = 23,
};

/* Every packet that comes in is counted at exactly one of: allow, audit, to_node, arp, non_ipv4, foreign, diverted, inspected, joined, or a drop; one
 * that goes out and was not judged when it came in at one of: allow, audit, from_node, arp, non_ipv4, foreign, or a drop.
 */
enum counter_index {
	COUNT_ALLOW = 1,
	COUNT_AUDIT = 2,
	COUNT_TO_NODE = 3,
	COUNT_ARP = 4,
	COUNT_NON_IPV4 = 5,
	COUNT_FOREIGN = 6,
	COUNT_FROM_NODE = 7,
	COUNT_FLOWS_OPENED = 8,  /* flows that were established */
	COUNT_FLOWS_CLOSED = 9,  /* and ended after that */
	COUNT_FLOWS_REJUDGED = 10,
	COUNT_HALF_OPENED = 11,  /* flows that a first packet opened */
	COUNT_ICMP_RELATED = 12, /* ICMP errors that quote a flow; also counted as allow or audit */
	COUNT_DIVERTED = 13,     /* handed to the DNS proxy */
	COUNT_INSPECTED = 14,    /* handed to the service plane */
	COUNT_JOINED = 15,       /* of connections that the service plane has decided and left */
	COUNT_EVENTS = 16,
	COUNT_EVENTS_LOST = 17,       /* the ring was full */
	COUNT_EVENTS_SUPPRESSED = 18, /* the source sent more than its share */
	COUNT_DROPS = 32,             /* + drop_reason */
	COUNTERS = 96,
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* Values of skb->priority that the ingress hook sets beside the mark. The guard's chain `marks` sets the bits of the mark from it:
 * conntrack can restore the mark of an earlier packet, but no priority. The lowest four bits are 0, best effort, for queues;
 * the kernel's ip_forward overwrites the value.
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
	__u32 exempt_bit; /* carried by the node's own sockets that are not judged */
	enum reverse_path reverse_path;
	__u32 rank_capacity; /* entries of `rank_hits` in each slot */
	__u32 hit_capacity;
	__u32 flow_seed;  /* of the hash that places flows */
	__u32 deny_events;  /* events that one source may cause each second on one CPU: of denied and dropped packets, */
	__u32 flow_events;  /* and of flows */
	__u32 timeouts[FLOW_STATES]; /* by state, in ticks */
	__u32 plane_address; /* where the service plane listens, host byte order; */
	__u32 plane_port;    /* 0: there is none */
	__u32 share_scale;   /* flow_share.h: part of the free table that one source may have, times 1 << SHARE_SHIFT */
	__u32 share_from;    /* half of the capacity: with fewer established flows no source has a limit */
	__u8 pass_non_ipv4;
	__u8 police_local;
	__u8 judge_all;  /* tests: every packet counts as forwarded, from where it says */
	__u8 trace_word; /* tests: the word that decided is left in cb[0] */
	__u8 direct;     /* what passes may be sent at once, without the stack */
	__u8 fib_flags;  /* of bpf_fib_lookup; what this kernel knows */
	__u8 bridges;    /* handover.h */
	__u8 flow_shift; /* log2 of the sets of `flows` */
	__u8 divert_dns; /* lookups go to the DNS proxy, whatever server they are for */
	__u8 copies_routes; /* copied-routes.h; not before Linux 6.2, which first lets a program see its device */
	__u8 reserved[2];
};

enum events_wanted {
	EVENTS_WANTED_PACKETS = 1, /* of single packets, and of flows that pass under audit */
	EVENTS_WANTED_FLOWS = 2,
};

/* `word` is epoch << 1 | slot; 0 is: never activated. It is changed by one store and read once a packet. */
struct active {
	__u32 word;
	__u32 layout_version;
	__u64 pickup_until_ns;
	__u32 events_wanted; /* enum events_wanted; 0: none is sent (D34) */
	__u32 reserved;
	__u64 direct_until_ns; /* with `direct`: what passes is sent at once until then, on the monotonic clock */
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
	__u16 use;
};

#define KEY_FREE 0    /* use: of a line that has no flow, */
#define KEY_USED 1    /* of one that has, and wherever a flow is looked for, */
#define KEY_CLAIMED 2 /* and while one CPU alone may write the line */

/* Times of flows are ticks of 2^20 ns of the monotonic clock; they wrap after 52 days and are compared by difference. */
#define TICK_SHIFT 20

#define FLOW_OPENED_BY_HIGH 1
#define FLOW_FOREIGN 2      /* came in by an interface that is not policed: only its replies are let in */
#define FLOW_RESET_BY_REPLY 4 /* which side sent the RST */
#define FLOW_HALF_OPEN 8    /* nobody has confirmed it yet */
#define FLOW_FIN 16         /* << direction */
#define FLOW_ENDING 64      /* from now on nobody begins to fold it, and who does already ends it: until the line has another flow */
#define FLOW_FOLDING 128    /* one CPU alone writes its tally now */

#define FLOW_WAYS 8

#define OPENED_SHIFT 23

/* What every packet touches; see flow_table.h. Another flow may get the line: who holds a pointer reads `judgement` and then
 * compares the key, which the next owner writes before it.
 */
struct flow {
	struct flow_key key;
	__u64 judgement;    /* active word << 32 | word: one store, so that nobody sees half of it; 0: of a foreign flow */
	__u32 last_seen;    /* ticks */
	__u8 state;
	__u8 flags;
	__u16 opened;       /* time, in units of 2^OPENED_SHIFT ns; they wrap after nine minutes */
	__u32 ifindex[2];   /* where packets of that direction come in, checked or, before the first, expected; 0: not known */
	__u32 packets[2];   /* 0: from the side that opened the flow. They wrap, and are folded before that */
	__u32 bytes[2];
	__u32 hops[2];      /* where packets of that direction go: entry of `ways` | since when << 16; 0: not known */
};

/* The rest of a flow, by the same index. A line without a flow has one of zeros, and a first packet leaves it so: what can be told
 * from the flow is told when that is first folded (`settle`).
 */
struct tally {
	__u64 opened_ns; /* 0: as the flow says */
	__u64 total_packets[2];  /* as far as they were folded */
	__u64 total_bytes[2];
	__u32 folded_packets[2]; /* of the flow's: already in the totals, and in the hits of a rule */
	__u32 folded_bytes[2];
	__u32 hit;               /* entry of `hits` that it counts for; 0: none, */
	__u32 hit_check;         /* and the low word of that entry's identity; both 0: as its judgement says */
};

/* Where the routes of the node send a packet. */
struct way {
	__u32 ifindex; /* 0: not known, or not forwarded */
	__u32 gateway; /* network byte order; 0: the destination itself */
	__u32 mtu;
	__u32 refreshed; /* ticks; one that nobody asked for again makes room */
};

/* Packets, bytes and last hit of one rule, group default or policy default. User space gives each identity an entry
 * and keeps it across policies; entry 0 is nobody's.
 */
struct hit {
	__u64 packets;
	__u64 bytes;
	__u64 last_ns; /* monotonic clock */
	__u64 identity;
};

/* What a word counts for: an entry of `hits`, and the low word of whose it is. */
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
	__u32 flow_seed; /* by which the tables were filled */
	__u32 established; /* flows at this moment */
};

/* The first fragment's ports for those that follow, and which eighths of the datagram were seen. */
struct fragment_key {
	__u32 source;
	__u32 destination;
	__u16 id;
	__u8 protocol;
	__u8 outgoing;
	__u32 ifindex; /* where its fragments are seen: those of another interface must not touch this datagram */
};

#define FRAGMENT_UNITS 8192
struct fragments {
	__u64 opened_ns;
	__u32 packet_ports; /* source << 16 | destination; ICMP: type << 24 | code << 16 | id */
	__u32 units;        /* seen so far */
	__u32 last_unit;    /* where the datagram ends; 0: not known */
	__u32 furthest;     /* where those that were seen end */
	__u64 seen[FRAGMENT_UNITS / 64];
};

/* Counters of established flows by a hash of the source that opened them. Two sources that share a counter share the limit: a
 * collision can refuse a flow too early, and never admit one too many.
 */
#define SHARES 65536
#define SHARE_SHIFT 16

enum event_type {
	EVENT_FLOW_OPENED = 1,
	EVENT_FLOW_ENDED = 2,
	EVENT_DENIED = 3,  /* by a word of the policy */
	EVENT_DROPPED = 4, /* without one */
	EVENT_PASSED = 5,  /* allowed or audited, of no flow */
};

#define EVENT_AUDITED 1  /* flags */
#define EVENT_FOREIGN 2
#define EVENT_OUTGOING 4 /* seen where the node sends */
#define EVENT_IPV6 8     /* dropped: `packets` is the source and `bytes` the destination, in network byte order; the other two are 0 */
#define EVENT_CUT 16    /* of a flow that ended: weir_cut ended it */

/* Addresses and ports are those of the packet; of a flow: of the packet that opened it. Host byte order. */
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
	__u8 tcp_flags; /* of a flow: its state */
	__u8 flags;
	__u32 epoch;
	__u32 word;
	__u32 hit;
	__u32 hit_check;
	__u32 suppressed; /* events of about this source that were not sent since the last one on this CPU */
	__u32 length;
	__u64 opened_ns;  /* of flows */
	__u64 packets[2]; /* of a flow that ended */
	__u64 bytes[2];
};

/* Packets that one run of weir_prove takes. */
#define PROOF_BATCH 8192

/* What is judged, and the word that judged it. */
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
	JOIN_QUIET = 1, /* the service plane has it still, and waits for a moment of rest */
	JOIN_HELD = 2,  /* nothing passes */
	JOINED = 3,
};

/* What weir_join found. */
enum joined {
	JOIN_AT_REST = 0, /* it is held */
	JOIN_BUSY = 1,
	JOIN_GONE = 2,
	JOIN_UNABLE = 3, /* others have a say in what is forwarded, and know only one of the connections */
};

/* Bits of `ends`. */
enum join_end {
	JOIN_ENDED = 1,
	JOIN_RESET = 2,
};

/* One direction of a connection that the service plane has left, or is about to leave. Numbers are its sender's. */
struct join {
	enum join_state state;
	__u32 joiner;
	__u32 id; /* means something to the joiner only */
	__u32 sequence; /* these four are added */
	__u32 acknowledgment;
	__u32 time;
	__u32 echo;
	__s32 window_shift; /* to the left */
	enum join_end ends;
	__u32 ifindex; /* where its packets come in, checked; 0: not known */
	__u32 hop;     /* as in struct flow */
	__u32 next;         /* number behind the last byte that was sent */
	__u32 acknowledged; /* number that was acknowledged last */
	__u32 window;       /* bytes that the sender had room for when it was joined, */
	__u32 stamp;        /* and its time stamp */
	__u32 last_seen;    /* ticks */
};

enum predecessor {
	PREDECESSOR_INGRESS = 0,
	PREDECESSOR_EGRESS = 1,
	PREDECESSORS = 2,
};

/* Adds what another datapath counted. */
struct carry_request {
	__u32 index;
	__u32 reserved;
	struct counter counter;
};

/* Brings a flow of another datapath over. */
struct carry_flow_request {
	struct flow flow;
	struct tally tally;
	__u32 half;    /* into `half_open` */
	__u32 carried; /* 0: the table is full, or one opened there meanwhile and has its counts now */
	__u32 again;   /* was brought over, and went on in the other datapath at that moment: adds what it carried since */
	__u32 vital;   /* state and flags as they were brought over */
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

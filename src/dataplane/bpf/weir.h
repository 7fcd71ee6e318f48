/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Structs and numbers that the datapath shares with user space. src/dataplane/abi/ and
 * src/contracts/datapath-numbers.ts encode and decode them. A test compares those encoders with the BTF of
 * this object. Increase LAYOUT_VERSION when a struct changes.
 */
#ifndef WEIR_H
#define WEIR_H

#define LAYOUT_VERSION 6

/* A program image consists of cache lines; src/dataplane/image/program-image.ts describes its layout. */
#define LINE_WORDS 16
#define IMAGE_MAGIC 0x52494557 /* "WEIR" in ASCII */

enum verdict {
	VERDICT_ALLOW = 1,
	VERDICT_DENY = 2,
	VERDICT_AUDIT = 3,
	VERDICT_REDIRECT = 4,
};

/* The names and numbers of drop reasons appear in metrics: append new drop reasons, and never reuse a
 * number.
 */
enum drop_reason {
	DROP_NONE = 0,
	DROP_MALFORMED = 1,            /* a header has a wrong value, or the packet ends inside a header */
	DROP_NON_IPV4 = 2,
	DROP_VLAN_TAGGED = 3,
	DROP_FRAGMENT = 4,             /* a later fragment whose first fragment was dropped or not seen */
	DROP_SPOOFED_SOURCE = 5,
	DROP_NO_POLICY = 6,            /* no policy was ever activated */
	DROP_POLICY_DENY = 7,
	DROP_SERVICE_PLANE_ABSENT = 8, /* the verdict is redirect, and no service plane runs */
	DROP_OUT_OF_STATE = 9,         /* a TCP packet that has no flow and is not a SYN */
	DROP_FLOW_TABLE_FULL = 10,
	DROP_GUARD = 11,               /* the nftables guard counts this drop reason, not the datapath */
	DROP_PROGRAM_DAMAGED = 12,     /* an index in the program image is out of bounds */
	DROP_TCP_FLAGS = 13,           /* a combination of TCP flags that no TCP sender produces */
	DROP_FRAGMENT_OVERLAP = 14,
	DROP_FRAGMENT_TINY = 15,       /* a first fragment that ends before its ports or TCP flags */
	DROP_ICMP_REDIRECT = 16,
	DROP_SOURCE_ROUTE = 17,        /* the packet has an IP option for source routing */
	DROP_DNS_PROXY_ABSENT = 18,    /* DNS lookups are diverted to the DNS proxy, but no DNS proxy listens */
	DROP_NOT_INSPECTED = 19,       /* the verdict is redirect, but the connection was opened without the service plane */
	DROP_NODE_UNINSPECTED = 20,    /* the verdict is redirect, but one end of the connection is the node itself */
	DROP_LOOPBACK = 21,            /* the source or destination is in 127.0.0.0/8 */
	DROP_FLOW_SHARE = 22,          /* the flow table is more than half full, and the source has reached its limit of established flows */
	DROP_REASONS = 23,
};

/* Counters of packets and flows. Each incoming packet increments exactly one of allow, audit, to_node,
 * arp, non_ipv4, foreign, diverted, inspected, joined, and the drop reasons. Each outgoing packet that was
 * not classified at ingress increments exactly one of allow, audit, from_node, arp, non_ipv4, foreign, and
 * the drop reasons.
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
	COUNT_ICMP_RELATED = 12, /* ICMP errors that quote a flow; each one also counts as allow or audit */
	COUNT_DIVERTED = 13,     /* packets handed to the DNS proxy */
	COUNT_INSPECTED = 14,    /* packets handed to the service plane */
	COUNT_JOINED = 15,       /* packets of spliced TCP connections (splice.h) */
	COUNT_EVENTS = 16,
	COUNT_EVENTS_LOST = 17,       /* events that were lost because the ring buffer was full */
	COUNT_EVENTS_SUPPRESSED = 18, /* events that were not sent because the source had used up its budget */
	COUNT_DROPS = 32,             /* the index of a drop counter is COUNT_DROPS + drop reason */
	COUNTERS = 96,
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* Values that the ingress hook writes to skb->priority when it marks a packet. The guard's chain `marks`
 * sets the mark bits of a packet from the priority, because conntrack can restore the mark of an earlier
 * packet but not its priority. The lowest four bits are 0, which means best effort for queueing
 * disciplines. Later, the kernel function ip_forward overwrites the priority.
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

/* States of a flow. The numbers stay the same in every layout version, because flows are migrated with
 * their state.
 */
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

/* The configuration of the datapath: read-only data of the BPF programs, which the loader writes before it
 * loads the programs.
 */
struct settings {
	__u32 slot_lines;
	__u32 mark_mask;
	__u32 guard_bit;
	__u32 exempt_bit; /* mark bit of the node's own sockets whose packets are not classified */
	enum reverse_path reverse_path;
	__u32 rank_capacity; /* number of entries of `rank_hits` for each program slot */
	__u32 hit_capacity;
	__u32 flow_seed;  /* seed of the hash that selects the flow sets of a flow */
	__u32 deny_events;  /* maximum number of events per second, source and CPU for denied and dropped packets */
	__u32 flow_events;  /* maximum number of events per second, source and CPU for flows */
	__u32 timeouts[FLOW_STATES]; /* time-out of a flow for each state, in ticks */
	__u32 plane_address; /* address of the service plane's listener, in host byte order */
	__u32 plane_port;    /* port of the service plane's listener; 0: there is no service plane */
	__u32 share_scale;   /* fraction of the free flow table that one source may use, times 1 << SHARE_SHIFT (flow_share.h) */
	__u32 share_from;    /* half of the flow table's capacity: with fewer established flows, sources have no limit */
	__u8 pass_non_ipv4;
	__u8 police_local;
	__u8 classify_all;  /* for tests: treats every packet as forwarded, and every source as valid */
	__u8 trace_word; /* for tests: stores the verdict word of a packet in skb->cb[0] */
	__u8 direct;     /* sends allowed packets directly to the next hop, without the network stack */
	__u8 fib_flags;  /* flags of bpf_fib_lookup that the running kernel supports */
	__u8 bridges;    /* this datapath runs together with its predecessor (handover.h) */
	__u8 flow_shift; /* log2 of the number of flow sets in `flows` */
	__u8 divert_dns; /* hands DNS lookups to the DNS proxy, whatever server they are addressed to */
	__u8 copies_routes; /* uses copied routes (copied_routes.h); only Linux 6.2 and later let a BPF program read the network device */
	__u8 reserved[2];
};

enum events_wanted {
	EVENTS_WANTED_PACKETS = 1, /* events of single packets, and of audited flows */
	EVENTS_WANTED_FLOWS = 2,
};

/* The state that user space changes while the datapath runs. `word` is the active word, epoch << 1 |
 * program slot; 0: no policy was ever activated. User space flips by one store to `word`. The datapath
 * reads `word` once per packet, so that one packet is never classified by two policies.
 */
struct active {
	__u32 word;
	__u32 layout_version;
	__u64 pickup_until_ns;
	__u32 events_wanted; /* bits of enum events_wanted; 0: the datapath sends no events (D34) */
	__u32 reserved;
	__u64 direct_until_ns; /* time of the monotonic clock until which allowed packets are sent directly, if the setting `direct` is on */
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
	__u8 kind; /* for ICMP: query class << 1 | 1 if the high address sends the queries, so that queries of the two sides are different flows; otherwise 0 */
	__u16 use;
};

#define KEY_FREE 0    /* value of `use`: the cache line has no flow */
#define KEY_USED 1    /* value of `use`: the cache line has a flow; each lookup uses this value too */
#define KEY_CLAIMED 2 /* value of `use`: one CPU owns the cache line, and writes or frees its flow */

/* Times in a flow are ticks of 2^20 ns (1.05 ms) of the monotonic clock. A time wraps after 52 days, so
 * compare two times by their difference.
 */
#define TICK_SHIFT 20

#define FLOW_OPENED_BY_HIGH 1
/* Opened by a packet from an interface without policy: only replies to that interface pass */
#define FLOW_FOREIGN 2
#define FLOW_RESET_BY_REPLY 4 /* the RST came from the replying side */
#define FLOW_HALF_OPEN 8    /* the other side has not confirmed the flow */
#define FLOW_FIN 16         /* FIN from the opener; FLOW_FIN << 1: FIN from the replying side */
/* The flow ends: no flush may begin, and a running flush must end the flow; set until the cache line is
 * reused
 */
#define FLOW_ENDING 64
#define FLOW_FLUSHING 128    /* one CPU owns the statistics of the flow, and flushes the counters to them */

#define FLOW_WAYS 8

#define OPENED_SHIFT 23

/* The fields of a flow that every packet uses, in one cache line; see flow_table.h. Another CPU can
 * replace the flow at any time. So a reader of `judgement` compares the key afterwards: the writer of a
 * new flow changes the key before `judgement`.
 */
struct flow {
	struct flow_key key;
	__u64 judgement;    /* active word << 32 | verdict word, written by one store, so that a reader never sees an old and a new half; 0: a foreign flow */
	__u32 last_seen;    /* time of the last packet, in ticks */
	__u8 state;
	__u8 flags;
	__u16 opened;       /* time of the first packet, in units of 2^OPENED_SHIFT ns; wraps after nine minutes */
	__u32 ifindex[2];   /* interface where packets of each direction come in: verified by a packet, or expected before the first one; 0: not known */
	__u32 packets[2];   /* packets since the flow opened; index 0: from the opener, 1: replies. The counters of packets and bytes wrap, so they are flushed before */
	__u32 bytes[2];
	__u32 hops[2];      /* next hop for each direction: index in `ways` | time of the lookup << 16; 0: not known */
};

/* The statistics of a flow, at the same index as the flow. In a cache line without a flow, all fields are
 * 0. A first packet leaves them at 0 while no events are wanted, which saves a cache miss; the first flush
 * then fills them in (`complete_tally`).
 */
struct tally {
	__u64 opened_ns; /* time when the flow opened, in ns; 0: derive it from `opened` of the flow */
	__u64 total_packets[2];  /* packets until the last flush, for each direction */
	__u64 total_bytes[2];
	__u32 folded_packets[2]; /* value of the flow's packet counters at the last flush; packets up to this value are in `total_packets` and in the hits */
	__u32 folded_bytes[2];
	__u32 hit;               /* entry of `hits` that the flow counts for; 0: no entry */
	__u32 hit_check;         /* lower 32 bits of the identity of entry `hit`; if `hit` and `hit_check` are both 0, the next flush derives them from `judgement` */
};

/* A next hop for packets, from a route of the node. */
struct way {
	__u32 ifindex; /* outgoing interface; 0: not known, or the packet is not forwarded */
	__u32 gateway; /* IPv4 address in network byte order; 0: the next hop is the destination itself */
	__u32 mtu;
	__u32 refreshed; /* time of the last use in ticks; an entry that was not used for WAY_TICKS can be replaced */
};

/* Packets, bytes and time of the last hit of one rule, group default or policy default. User space assigns
 * each identity to an entry, and keeps the assignment when the policy changes. Entry 0 is not assigned.
 */
struct hit {
	__u64 packets;
	__u64 bytes;
	__u64 last_ns; /* time of the last hit on the monotonic clock */
	__u64 identity;
};

/* The entry of `hits` that packets with one verdict word count for. `check` is the lower 32 bits of the
 * entry's identity: if the identity differs by now, nothing is counted.
 */
struct hit_ref {
	__u32 hit;
	__u32 check;
};

/* The results of the last sweep of the flow table, and the current number of established flows. */
struct vitals {
	__u64 swept_ns;
	__u64 sweep_took_ns;
	__u32 flows;
	__u32 half_open;
	__u32 flow_seed; /* seed with which flows were placed into the flow table */
	__u32 established; /* current number of established flows */
};

/* The reassembly state of one datagram: the ports of its first fragment for the later fragments, and the
 * received units of eight bytes.
 */
struct fragment_key {
	__u32 source;
	__u32 destination;
	__u16 id;
	__u8 protocol;
	__u8 outgoing;
	__u32 ifindex; /* incoming interface; part of the key, so that a fragment from another interface cannot change this datagram */
};

#define FRAGMENT_UNITS 8192
struct fragments {
	__u64 opened_ns;
	__u32 packet_ports; /* source port << 16 | destination port; for ICMP: type << 24 | code << 16 | id */
	__u32 units;        /* number of units of eight bytes received so far */
	__u32 last_unit;    /* index after the last unit of the datagram; 0: not known */
	__u32 furthest;     /* index after the furthest unit that was received */
	__u64 seen[FRAGMENT_UNITS / 64];
};

/* Number of counters of established flows, which limit the flows of a source (flow_share.h). A hash of the
 * source selects a counter. Sources with the same counter have one limit together: a source may be refused
 * too early, but no source exceeds its limit.
 */
#define SHARES 65536
#define SHARE_SHIFT 16

enum event_type {
	EVENT_FLOW_OPENED = 1,
	EVENT_FLOW_ENDED = 2,
	EVENT_DENIED = 3,  /* a packet that the policy denied */
	EVENT_DROPPED = 4, /* a packet that was dropped for another reason than the policy */
	EVENT_PASSED = 5,  /* a packet that passed as allowed or audited, and opened no flow */
};

#define EVENT_AUDITED 1  /* bit of `flags` in struct event: the verdict of the packet or flow is audited */
#define EVENT_FOREIGN 2
#define EVENT_OUTGOING 4 /* bit of `flags`: the packet was seen at an egress hook */
/* Bit of `flags`: a dropped IPv6 packet, with the source address in `packets` and the destination address
 * in `bytes`
 */
#define EVENT_IPV6 8
#define EVENT_CUT 16    /* bit of `flags`: `weir_cut` ended the flow */

/* A record of the ring buffer. For a flow, addresses and ports are those of the packet that opened the
 * flow. Host byte order.
 */
struct event {
	__u64 time_ns; /* time of the event on the monotonic clock */
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
	__u8 tcp_flags; /* for a flow: a value of enum flow_state */
	__u8 flags;
	__u32 epoch;
	__u32 word;
	__u32 hit;
	__u32 hit_check;
	__u32 suppressed; /* number of events that were suppressed for sources with the same hash, since the last event that this CPU sent for them */
	__u32 length;
	__u64 opened_ns;  /* time when the flow opened; 0 in an event of a single packet */
	__u64 packets[2]; /* packets of each direction, for a flow that ended */
	__u64 bytes[2];
};

/* Maximum number of packets that one run of `weir_prove` classifies. */
#define PROOF_BATCH 8192

/* A packet that a proof classifies, and the verdict word that the datapath computed for it. */
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

/* The addresses and ports of packets of one direction of a spliced connection, in host byte order. */
struct join_key {
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
};

enum join_state {
	JOIN_QUIET = 1, /* the service plane still relays the bytes, and waits until both TCP connections are at rest (no unread or unacknowledged data) */
	JOIN_HELD = 2,  /* no packet of the two TCP connections passes */
	JOINED = 3,
};

/* Results of the BPF program weir_join. */
enum joined {
	JOIN_AT_REST = 0, /* both TCP connections are at rest (no unread or unacknowledged data), and the datapath lets none of their packets pass */
	JOIN_BUSY = 1,
	JOIN_GONE = 2,
	JOIN_UNABLE = 3, /* packets are not forwarded directly: third-party hooks would see only one of the two TCP connections */
};

/* Bits of `ends` in struct join: how one direction of a spliced connection has ended. */
enum join_end {
	JOIN_ENDED = 1,
	JOIN_RESET = 2,
};

/* One direction of a connection that is spliced, or about to be. Sequence numbers are those that the
 * sender of this direction uses.
 */
struct join {
	enum join_state state;
	__u32 joiner;
	__u32 id; /* number that user space gives the connection; the datapath does not use it */
	__u32 sequence; /* added to the sequence number of each packet; the next three fields are added to the acknowledgment number, the time stamp and the time stamp echo */
	__u32 acknowledgment;
	__u32 time;
	__u32 echo;
	__s32 window_shift; /* number of bits by which the window is shifted to the left; negative: to the right */
	enum join_end ends;
	__u32 ifindex; /* interface where packets of this direction come in, after a check of the source; 0: not known */
	__u32 hop;     /* next hop, in the format of `hops` in struct flow */
	__u32 next;         /* sequence number after the last byte that the sender has sent */
	__u32 acknowledged; /* last acknowledgment number that the sender has sent */
	__u32 window;       /* receive window of the sender at the time of splicing, in bytes */
	__u32 stamp;        /* TCP time stamp of the sender at the time of splicing */
	__u32 last_seen;    /* time of the last packet, in ticks */
};

enum predecessor {
	PREDECESSOR_INGRESS = 0,
	PREDECESSOR_EGRESS = 1,
	PREDECESSORS = 2,
};

/* Request to `weir_migrate_count`: adds the counts of the predecessor datapath to one counter. */
struct migrate_count_request {
	__u32 index;
	__u32 reserved;
	struct counter counter;
};

/* Request to `weir_migrate_flow`: copies a flow of the predecessor datapath into this datapath. */
struct migrate_flow_request {
	struct flow flow;
	struct tally tally;
	__u32 half;    /* 1: the flow is half open */
	__u32 copied; /* result: 1 if the flow was copied; 0 if the flow table is full, the flow has a loopback address, or the same flow already exists here */
	__u32 again;   /* 1: the flow was copied before; add the packets that the predecessor has counted since */
	__u32 vital;   /* state and flags at the time of the first copy */
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

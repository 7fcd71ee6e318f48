/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Structs and numbers that the datapath (the BPF programs) shares with user space. The code in
 * src/dataplane/abi/ and src/contracts/datapath/datapath-numbers.ts encodes and decodes these structs. A test
 * compares that code with the BTF of the BPF object. Increase LAYOUT_VERSION when a struct changes.
 */
#ifndef WEIR_H
#define WEIR_H

#define LAYOUT_VERSION 9

/* A program image is a compiled policy as the BPF programs read it. It consists of cache lines of LINE_WORDS
 * 32-bit words; src/dataplane/image/program-image.ts describes its layout.
 */
#define LINE_WORDS 16
#define IMAGE_MAGIC 0x52494557 /* magic number of a program image: "WEIR" in ASCII */

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
	DROP_FRAGMENT = 4,             /* a later fragment; the first fragment was dropped, or the datapath has not seen it */
	DROP_SPOOFED_SOURCE = 5,
	DROP_NO_POLICY = 6,            /* no policy was ever activated */
	DROP_POLICY_DENY = 7,
	DROP_SERVICE_PLANE_ABSENT = 8, /* the verdict is redirect, but no service plane accepts the packet */
	DROP_OUT_OF_STATE = 9,         /* a TCP packet that has no flow and is not a SYN */
	DROP_FLOW_TABLE_FULL = 10,
	DROP_GUARD = 11,               /* the guard (Weir's nftables rules) counts packets with this drop reason, not the datapath */
	DROP_PROGRAM_DAMAGED = 12,     /* an index in the program image is out of bounds */
	DROP_TCP_FLAGS = 13,           /* a combination of TCP flags that no TCP sender produces */
	DROP_FRAGMENT_OVERLAP = 14,
	DROP_FRAGMENT_TINY = 15,       /* a first fragment that ends before its ports or TCP flags */
	DROP_ICMP_REDIRECT = 16,
	DROP_SOURCE_ROUTE = 17,        /* the packet has an IP option for source routing */
	DROP_DNS_PROXY_ABSENT = 18,    /* the datapath diverts DNS queries to the DNS proxy, but no DNS proxy listens */
	DROP_NOT_INSPECTED = 19,       /* the verdict is redirect, but the service plane does not inspect the connection that the packet belongs to */
	DROP_NODE_UNINSPECTED = 20,    /* the verdict is redirect, but one end of the connection is the node itself */
	DROP_LOOPBACK = 21,            /* the source or destination is in 127.0.0.0/8 */
	DROP_FLOW_SHARE = 22,          /* the flow table is more than half full, and the source has reached its limit of established flows */
	DROP_TCP_SEQUENCE = 23,        /* a RST whose sequence number is not the next one that its receiver expects */
	DROP_IPV6 = 24,
	DROP_ROUTER_GUARD = 25, /* a message of an IPv6 router or DHCPv6 server, from a bridge port that has none */
	DROP_REASONS = 26,
};

/* Indexes of the map `counters`. Each packet at an ingress hook is counted in exactly one of allow, audit,
 * to_node, arp, non_ipv4, foreign, diverted, inspected, joined, or one drop reason. At an egress hook, each
 * packet that the ingress hook has not classified is counted in exactly one of allow, audit, from_node, arp,
 * non_ipv4, foreign, or one drop reason. During an upgrade, the predecessor datapath counts the packets that
 * it handles.
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
	COUNT_FLOWS_CLOSED = 9,  /* established flows that ended or were suspended */
	COUNT_FLOWS_REJUDGED = 10,
	COUNT_HALF_OPENED = 11,  /* flows that a packet opened; each flow is half open at first */
	COUNT_ICMP_RELATED = 12, /* ICMP errors that quote a packet of a flow; each error is also counted as allow, audit or foreign (no rule) */
	COUNT_DIVERTED = 13,     /* packets handed to the DNS proxy */
	COUNT_INSPECTED = 14,    /* packets (and ICMP errors about packets) of inspected connections */
	COUNT_JOINED = 15,       /* packets (and ICMP errors about packets) of spliced TCP connections (splice.h) */
	COUNT_EVENTS = 16,
	COUNT_EVENTS_LOST = 17,       /* events that were lost because the ring buffer was full */
	COUNT_EVENTS_SUPPRESSED = 18, /* events that the datapath did not send, because the source had used up its budget (report/events.h) */
	COUNT_DNS_UNROUTABLE = 19,    /* DNS queries that are not diverted, because their destination has neither a route nor a socket of the node */
	COUNT_FLOWS_SUSPENDED = 20,   /* flows that a later policy denies, and that are kept (found_flow.h) */
	COUNT_FLOWS_RESUMED = 21,     /* such flows that a still later policy allows again */
	COUNT_DROPS = 32,             /* the index of a drop counter is COUNT_DROPS + drop reason */
	COUNTERS = 96,
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* Values that the ingress hook writes to skb->priority when it marks a packet. The guard (Weir's nftables
 * rules) derives the mark bits from this priority in its chain `marks`, because third-party rules can restore
 * an old mark from conntrack, but no priority. The lowest four bits are 0, which means best effort for
 * queueing disciplines. Later, the kernel function ip_forward overwrites the priority.
 */
enum priority {
	PRIORITY_PASSED = 0x77656900,
	PRIORITY_REDIRECTED = 0x77656910,
	PRIORITY_PENDING = 0x77656920,    /* passed undecided; the forward judge (nat/forward_judge.h) must decide the packet */
	PRIORITY_TRANSLATED = 0x77656930, /* passed; decided by the addresses before SNAT and after DNAT */
};

#define PRIORITY_VARIANTS 0x30 /* the bits that differ between the values of this enum */

enum reverse_path {
	REVERSE_PATH_OFF = 0,
	REVERSE_PATH_LOOSE = 1,
	REVERSE_PATH_STRICT = 2,
};

/* States of a flow. The numbers stay the same in every layout version, because an upgrade copies flows with
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

/* An address of either family, in host byte order: an IPv4 address in the lowest 32 bits. */
typedef unsigned __int128 any_address_t __attribute__((aligned(8)));

/* The configuration of the datapath: read-only data of the BPF programs, which the loader writes before it
 * loads the programs.
 */
/* A range of addresses that the node translates: service addresses of a cluster or of containers. */
struct translated_prefix {
	address_t address;
	address_t mask;
};
#define TRANSLATED_PREFIXES 16

struct settings {
	__u32 slot_lines;
	__u32 mark_mask;
	__u32 guard_bit;
	__u32 exempt_bit; /* mark bit of Weir's own sockets, whose packets the datapath does not classify */
	/* Mark bit of packets whose addresses the node translates (nat/translation.h). Without `guard_bit`: the
	 * forward judge (a netfilter program) must decide the packet. With `guard_bit`: the ingress hook has decided
	 * it by its real ends (the client before SNAT, the server after DNAT).
	 */
	__u32 nat_bit;
	enum reverse_path reverse_path;
	__u32 rank_capacity; /* number of entries of `rank_hits` for each program slot */
	__u32 hit_capacity;
	__u32 flow_seed;  /* seed of the hash that selects the flow sets of a flow */
	__u32 deny_events;  /* maximum number of events about single packets, per second, source and CPU */
	__u32 flow_events;  /* maximum number of events about flows, per second, source and CPU */
	__u32 timeouts[FLOW_STATES]; /* idle time, in ticks, after which a flow in this state expires */
	address_t plane_address; /* address of the service plane's listener, in host byte order */
	__u32 plane_port;    /* port of the service plane's listener; 0: there is no service plane */
	__u32 share_scale;   /* fraction of the free flow table that one source may use, times 1 << SHARE_SHIFT (flow_share.h) */
	__u32 translated_prefixes; /* number of ranges in use in `translated` */
	__u32 share_from;    /* half of the flow table's capacity: while fewer flows are established, sources have no limit */
	struct translated_prefix translated[TRANSLATED_PREFIXES];
	__u8 pass_non_ipv4;
	__u8 police_local;
	__u8 classify_all;  /* for tests: treats every packet as forwarded, and every source as valid */
	__u8 trace_word; /* for tests: stores the verdict word of a packet in skb->cb[0] */
	__u8 direct;     /* sends allowed packets directly to the next hop, without the network stack */
	__u8 fib_flags;  /* flags of bpf_fib_lookup that the running kernel supports */
	__u8 hands_over; /* this datapath runs together with its predecessor (handover.h) */
	__u8 flow_shift; /* log2 of the number of flow sets in `flows` */
	__u8 divert_dns; /* hands DNS queries to the DNS proxy, whatever server they are addressed to */
	__u8 copies_routes; /* uses copied routes (copied_routes.h); only Linux 6.2 and later let a BPF program read the network device */
	__u8 reads_conntrack; /* the kernel has the function bpf_skb_ct_lookup */
	__u8 pass_without_policy; /* passes packets until the first policy is in force (policy.fallback: allow) */
	__u8 pass_ipv6;
	__u8 enforces_ipv6; /* policies apply to IPv6: the programs in the map `ipv6_programs` handle IPv6 packets */
	__u8 reserved[2];
	/* The times for which conntrack keeps an established connection, if the datapath translates its packets
	 * (Linux 6.0); else 0.
	 */
	__u32 keep_tcp_ms;
	__u32 keep_udp_ms;
};

enum events_wanted {
	EVENTS_WANTED_PACKETS = 1, /* events of single packets, and of audited flows, are requested */
	EVENTS_WANTED_FLOWS = 2,
};

/* The IP families whose addresses the node translates (NAT), so that the datapath searches conntrack. For
 * IPv4, the forward judge (nat/forward_judge.h) is attached too.
 */
enum translates {
	TRANSLATES_IPV4 = 1,
	TRANSLATES_IPV6 = 2,
};

/* The state that user space changes while the datapath runs. `word` is the active word: epoch << 1 | the low
 * bit of the program slot, with THIRD_SLOT for slot 2; 0 means that no policy was ever activated. User space
 * activates another policy (a flip) by one compare-and-exchange of `word`, because the revert timer
 * (revert.h) can change it too. The datapath reads `word` once per packet, so that two policies never
 * classify the same packet.
 */
struct active {
	__u32 word;
	__u32 layout_version;
	__u64 pickup_until_ns;
	__u32 events_wanted; /* bits of enum events_wanted; 0: the datapath sends no events (D34) */
	enum translates translates; /* bits */
	/* Times of the monotonic clock until which allowed packets are sent directly, if the setting `direct` is
	 * on.
	 */
	__u64 direct_until_ns;
	__u64 ipv6_direct_until_ns;
};

struct line {
	__u32 words[LINE_WORDS];
};

/* The key of a flow. Packets of both directions give the same key, because the lower (address, port)
 * always comes first. Host byte order.
 */
struct flow_key {
	address_t low_address;
	address_t high_address;
	__u16 low_port;
	__u16 high_port;
	__u8 protocol;
	/* For ICMP: query class << 1, plus 1 if the side with the high address sends the queries. So queries of
	 * the two sides are different flows. 0 for other protocols.
	 */
	__u8 kind;
	__u16 use;
};

/* Bit of `judgement` in a flow. If it is set, the next packet classifies the flow again. The rest of
 * `judgement` stays, so that the counters of the flow still count for the rule that decided it. No active
 * word has this bit. User space sets the bit after a change of members, and a suspended flow always has it.
 */
#define RECLASSIFY (1ULL << 63)

#define KEY_FREE 0    /* value of `use`: the cache line has no flow */
#define KEY_USED 1    /* value of `use`: the cache line has a flow; a key to search for has this value too */
#define KEY_CLAIMED 2 /* value of `use`: one CPU owns the cache line, and writes or frees its flow */

/* Times in a flow are ticks of 2^20 ns (1.05 ms) of the monotonic clock. A time wraps after 52 days, so
 * compare two times by their difference.
 */
#define TICK_SHIFT 20

#define FLOW_OPENED_BY_HIGH 1
/* Bit of `flags`: the datapath did not classify the packet that opened the flow. The packet came in by an
 * interface without policy, or one of Weir's own sockets sent it. Only replies of such a flow pass.
 */
#define FLOW_FOREIGN 2
#define FLOW_RESET_BY_REPLY 4 /* bit of `flags`: the last RST came from the replying side */
#define FLOW_HALF_OPEN 8    /* bit of `flags`: the flow is not established yet */
#define FLOW_FIN 16         /* bit of `flags`: the opener has sent a FIN; FLOW_FIN << 1: the replying side */
/* Bit of `flags`: a CPU ends the flow. No other CPU may begin a flush, and a CPU that already flushes the
 * flow must end it. The bit stays set until a new flow uses the cache line.
 */
#define FLOW_ENDING 64
#define FLOW_FLUSHING 128   /* bit of `flags`: one CPU owns the statistics and flushes the counters to them */

#define FLOW_WAYS 8

#define OPENED_SHIFT 23

/* The fields of a flow that every packet uses, in one cache line; see flow_table.h. Another CPU can replace
 * the flow at any time. That CPU invalidates the key before it writes `judgement`. So a reader of `judgement`
 * must compare the key afterwards.
 */
struct flow {
	struct flow_key key;
	/* Active word << 32 | verdict word of the last classification; 0 if no rule decided the flow. One store
	 * writes both halves, so that a reader never combines an old half with a new half. The highest bit is
	 * RECLASSIFY. A flow whose verdict word refuses packets is suspended (found_flow.h).
	 */
	__u64 judgement;
	__u32 last_seen;    /* time of the last packet, in ticks */
	__u8 state;
	__u8 flags;
	__u16 opened;       /* time of the first packet, in units of 2^OPENED_SHIFT ns; wraps after nine minutes */
	/* `ifindex`: incoming interface of each direction; 0: not known. A packet has verified this interface;
	 * before the first packet of the direction, the value is only an expectation. `packets`, `bytes`: counted
	 * since the flow opened; index 0: from the opener, 1: replies. A flush saves these counters before the
	 * 32-bit numbers wrap (flow/flush.h).
	 */
	__u32 ifindex[2];
	__u32 packets[2];
	__u32 bytes[2];
	/* Lower bits of the last TCP acknowledgment number of each side (flow/tcp_numbers.h). 0: not known, so each
	 * RST of the other side counts.
	 */
	__u16 tcp_numbers[2];
	__u32 hops; /* next hop of each direction, and the time of the lookup (route/next_hop.h); 0: not known */
	FLOW_PADDING
};

/* The statistics of a flow, at the same index as the flow. All fields are 0 if the cache line has no flow.
 * While no events are requested, the packet that opens a flow does not write the statistics, which saves a
 * cache miss. The first flush then fills in the fields (`complete_tally`).
 */
struct tally {
	__u64 opened_ns; /* time when the flow opened, in ns; 0: derive it from `opened` of the flow */
	__u64 total_packets[2];  /* packets until the last flush, for each direction */
	__u64 total_bytes[2];
	/* Value of the flow's packet counters at the last flush. Packets up to this value are already in
	 * `total_packets` and in the hits.
	 */
	__u32 folded_packets[2];
	__u32 folded_bytes[2];
	__u32 hit;               /* entry of `hits` that the flow counts for; 0: no entry */
	/* Lower 32 bits of the identity of the rule or default that entry `hit` counts. If `hit` and `hit_check` are
	 * both 0, the next flush derives them from `judgement`.
	 */
	__u32 hit_check;
};

/* A next hop for packets, from a route of the node. */
struct way {
	__u32 ifindex; /* outgoing interface; 0: not known, or the packet is not forwarded */
	header_address_t gateway; /* 0: the destination itself is the next hop */
	__u32 mtu;
	/* Time in ticks when a flow last stored this next hop. After WAY_TICKS, another next hop can replace the
	 * entry.
	 */
	__u32 refreshed;
};

/* Packets, bytes and time of the last hit of one rule, group default or policy default, which `identity`
 * names. User space assigns the entries to identities, and keeps the assignment when the policy changes.
 * Entry 0 is never assigned.
 */
struct hit {
	__u64 packets;
	__u64 bytes;
	__u64 last_ns; /* time of the last hit on the monotonic clock */
	__u64 identity;
};

/* The entry of `hits` that counts the packets with one verdict word. `check` is the lower 32 bits of the
 * identity of the entry's rule or default. If user space has assigned the entry to another rule since, the
 * datapath counts nothing.
 */
struct hit_ref {
	__u32 hit;
	__u32 check;
};

/* The results of the last complete sweep (the periodic walk over the flow table), and the current number of
 * established flows.
 */
struct vitals {
	__u64 swept_ns;
	__u64 sweep_took_ns;
	__u32 flows;
	__u32 half_open;
	__u32 flow_seed; /* seed of the hash that placed the present flows in the flow table */
	__u32 established; /* current number of established flows */
};

/* Key of the map `fragments`: identifies one fragmented datagram on one hook. */
struct fragment_key {
	address_t source;
	address_t destination;
	fragment_id_t id;
	__u8 protocol;
	__u8 outgoing;
	/* Interface of the hook that sees the fragment. It is part of the key, so that a fragment on another
	 * interface cannot change the state of this datagram.
	 */
	__u32 ifindex;
};

#define FRAGMENT_UNITS 8192
/* The reassembly state of one datagram: the ports of its first fragment, which the later fragments lack, and
 * the units of eight bytes that have arrived.
 */
struct fragments {
	__u64 opened_ns;
	__u32 packet_ports; /* source port << 16 | destination port; for ICMP: type << 24 | code << 16 | id */
	__u32 units;        /* number of units of eight bytes received so far */
	__u32 last_unit;    /* index after the last unit of the datagram; 0: not known */
	__u32 furthest;     /* index after the furthest unit that was received */
	__u64 seen[FRAGMENT_UNITS / 64];
	FRAGMENTS_PROTOCOL
};

/* Number of counters of established flows, which limit the flows of a source (flow_share.h). A hash of the
 * source selects a counter. Sources with the same counter have one limit together. So the datapath may refuse
 * a flow of a source too early, but no source exceeds its limit.
 */
#define SHARES 65536
#define SHARE_SHIFT 16

enum event_type {
	EVENT_FLOW_OPENED = 1,
	EVENT_FLOW_ENDED = 2,
	EVENT_DENIED = 3,  /* a packet that the policy denied */
	EVENT_DROPPED = 4, /* a packet that the datapath dropped for another reason than the policy */
	EVENT_PASSED = 5,  /* a packet that passed as allowed or audited, and opened no flow */
	EVENT_FLOW_SUSPENDED = 6,
	EVENT_FLOW_RESUMED = 7,
};

/* The largest epoch (activation number). Above its bits, an active word has THIRD_SLOT, and the judgement of
 * a flow has RECLASSIFY.
 */
#define MAX_EPOCH 0x1fffffff
/* Bit of an active word that selects program slot 2. A word of slot 0 or 1 has the same form as in a build
 * without a third slot.
 */
#define THIRD_SLOT 0x40000000U

#define EVENT_AUDITED 1  /* bit of `flags` in struct event: the verdict of the packet or flow is audited */
#define EVENT_FOREIGN 2
#define EVENT_OUTGOING 4 /* bit of `flags`: the packet was seen at an egress hook */
#define EVENT_IPV6 8     /* bit of `flags`: the addresses are those of IPv6 */
#define EVENT_CUT 16    /* bit of `flags`: an operator ended the flow (BPF program `weir_cut`) */
/* Bit of `flags` of a single packet and of an opened flow: the node has translated the destination. The
 * address on the wire is in the second elements, its lower 64 bits in `packets` and its upper ones in
 * `bytes`. The port on the wire, if the protocol has ports, is in `icmp_type` (its lower byte) and
 * `icmp_code`.
 */
#define EVENT_TRANSLATED 32

/* A record of the ring buffer, the same for both families. For a flow, addresses and ports are those of the
 * packet that opened the flow. Host byte order.
 */
struct event {
	__u64 time_ns; /* time of the event on the monotonic clock */
	__u8 type;
	__u8 verdict;
	__u8 drop_reason;
	__u8 protocol;
	__u32 ifindex;
	any_address_t source;
	any_address_t destination;
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
	/* Number of events that this CPU has suppressed since its last event of a source with the same hash. */
	__u32 suppressed;
	__u32 length;
	__u64 opened_ns;  /* time when the flow opened; 0 in an event of a single packet */
	__u64 packets[2]; /* for a flow: packets of the opener, packets of the replying side; for a single packet: only index 0 */
	__u64 bytes[2];
};

/* Maximum number of packets that one run of the BPF program `weir_prove` classifies. */
#define PROOF_BATCH 8192

/* A packet that a proof classifies (a proof compares a compiled policy with the reference evaluator), and the
 * verdict word that the datapath computed for the packet.
 */
struct proof_packet {
	address_t source;
	address_t destination;
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 reserved;
	__u32 word;
	__u32 owner; /* the owner of the source, as `owner_of` returns it (classify/members.h) */
};

struct proof_request {
	__u32 word; /* an active word with the program slot to prove */
	__u32 count;
};

/* Request to the BPF program `weir_set_revert`: sets or stops the revert timer (revert.h). */
struct revert_request {
	__u64 at_ns; /* time of the monotonic clock; 0 stops the timer */
	__u32 slot;
	__u32 reserved;
};

#define JOINS 131072
#define JOINERS 64

/* The addresses and ports of one direction of a spliced connection (inspect/splice.h), in host byte order. */
struct join_key {
	address_t source;
	address_t destination;
	__u16 source_port;
	__u16 destination_port;
	JOIN_KEY_PADDING
};

enum join_state {
	/* The service plane (TLS and HTTP inspection) still relays the bytes, and waits until both TCP connections
	 * are at rest (no unread or unacknowledged data).
	 */
	JOIN_QUIET = 1,
	JOIN_HELD = 2,  /* the datapath drops each packet of the two TCP connections */
	JOINED = 3,
};

/* Results of the BPF program weir_join, which prepares a connection to be spliced (inspect/splice.h). */
enum joined {
	/* Both TCP connections are at rest (no unread or unacknowledged data). The datapath now drops each of
	 * their packets.
	 */
	JOIN_AT_REST = 0,
	JOIN_BUSY = 1,
	JOIN_GONE = 2,
	/* Direct forwarding is off, so hooks of other software may exist. They would see only one of the two TCP
	 * connections of a spliced connection.
	 */
	JOIN_UNABLE = 3,
};

/* Bits of `ends` in struct join: how one direction of a spliced connection (inspect/splice.h) has ended. */
enum join_end {
	JOIN_ENDED = 1,
	JOIN_RESET = 2,
};

/* One direction of a connection that is spliced (forwarded by the datapath in place of the service plane), or
 * about to be spliced. The sequence numbers are those that the sender of this direction uses.
 */
struct join {
	enum join_state state;
	__u32 joiner;
	__u32 id; /* number that user space gives the connection; the datapath does not use it */
	/* The datapath adds `sequence` to the sequence number of each packet, and the next three fields to the
	 * acknowledgment number, the time stamp and the time stamp echo.
	 */
	__u32 sequence;
	__u32 acknowledgment;
	__u32 time;
	__u32 echo;
	__s32 window_shift; /* number of bits by which the window is shifted to the left; negative: to the right */
	enum join_end ends;
	__u32 ifindex; /* incoming interface of this direction, whose source address the datapath has checked; 0: not known */
	__u32 hop;     /* next hop, in the format of `hops` in struct flow */
	__u32 next;         /* sequence number after the last byte that the sender has sent */
	__u32 acknowledged; /* last acknowledgment number that the sender has sent */
	__u32 window;       /* receive window of the sender at the time of splicing, in bytes */
	__u32 stamp;        /* TCP time stamp of the sender at the time of splicing */
	__u32 last_seen;    /* time of the last packet, in ticks */
};

#define PORTS 256
#define PORT_ADDRESSES 8

/* A policed bridge port (route/bridge_port.h). The objects of both IP families share these entries. */
struct port {
	__u32 bridge; /* interface index of the bridge */
	__u8 mac[6];  /* MAC address of the bridge */
	__u8 has_routes; /* the bridge has an IPv4 address or route, so the source must route back through the bridge */
	__u8 policed; /* the bridge itself has a hook, which classifies what the bridge delivers to the node */
	__u32 addresses[PORT_ADDRESSES]; /* IPv4 addresses of the bridge, in host byte order; then 0 */
	__u8 has_ipv6_routes;
	__u8 has_router; /* IPv6 routers and DHCPv6 servers may be behind the port (`dataplane.router_ports`) */
	__u8 reserved[2];
	any_address_t ipv6_addresses[PORT_ADDRESSES];
};

/* Indexes of the map `ipv6_programs`. */
enum ipv6_program {
	IPV6_INGRESS = 0,
	IPV6_EGRESS = 1,
	IPV6_FULL_PATH = 2,
	IPV6_PROGRAMS = 3,
};

enum predecessor {
	PREDECESSOR_INGRESS = 0,
	PREDECESSOR_EGRESS = 1,
	PREDECESSORS = 2,
};

/* Request to the BPF program `weir_migrate_count`: adds the counts of the predecessor datapath to one
 * counter.
 */
struct migrate_count_request {
	__u32 index;
	__u32 reserved;
	struct counter counter;
};

/* Request to the BPF program `weir_migrate_flow`: migrates a flow of the predecessor to this datapath. */
enum migrate_mode {
	MIGRATE_FIRST = 0,
	MIGRATE_DELTA = 1,     /* an earlier request migrated the flow: add what has changed in the predecessor since then */
	MIGRATE_IF_ABSENT = 2, /* migrate the flow only if this datapath does not have it */
};

struct migrate_flow_request {
	struct flow flow;
	struct tally tally;
	__u32 half; /* 1: the flow is half open */
	/* Result: 1 if the BPF program has added the flow. 0 if the flow table is full, the flow has a loopback
	 * address, this datapath already has the same flow, or `mode` is MIGRATE_DELTA.
	 */
	__u32 migrated;
	__u32 mode;            /* a value of enum migrate_mode */
	__u32 state_and_flags; /* for MIGRATE_DELTA: state and flags in the first request */
};

struct bench_request {
	__u32 slot;
	__u32 count;
	__u32 seed;
	__u32 keys_only; /* 1: the benchmark only computes the random keys, to measure their cost without a classification */
	address_t source_base;
	address_t source_mask;
	address_t destination_base;
	address_t destination_mask;
	__u32 port_map_key_base;
	__u32 port_map_key_mask;
	__u32 checksum;
	__u32 reserved;
	__u64 elapsed_ns;
};

_Static_assert(sizeof(struct line) == 64, "a line is a cache line");
_Static_assert(sizeof(struct active) == 40, "active is mapped by user space");
_Static_assert(sizeof(struct tally) == 64, "a cache line");
_Static_assert(sizeof(struct hit) == 32, "no padding in a hit");
_Static_assert(sizeof(struct hit_ref) == 8, "elements of an array stand eight bytes apart, or more");
_Static_assert(sizeof(struct vitals) == 32, "no padding in vitals");
_Static_assert(sizeof(struct event) == 120, "no padding in an event");
_Static_assert(sizeof(struct port) == 176, "no padding in a port");
_Static_assert(sizeof(struct join) == 64, "no padding in a join");

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV4_COPIED_ROUTES_H
#define WEIR_IPV4_COPIED_ROUTES_H

/* A copy of the node's routes: the outgoing interface for each address. A search in the copied routes costs
 * less than `bpf_fib_lookup`. User space makes the copy, and also stores the value of the kernel's change
 * counter (`fib_seq`) at that moment. The kernel increments this counter with each change of a route.
 *
 * The datapath falls back to `bpf_fib_lookup` in three cases: the change counter has changed, the node has
 * policy routing rules, or an address has several next-hop interfaces.
 *
 * The copied routes are a search tree of cache lines. Line 0 is the header, and line 1 is the root with 16
 * keys. Each key selects one of 16 inner lines, whose keys select the bottom lines. A bottom line has eight
 * keys and then eight interfaces. Each key is the first address of an interval.
 */
#define ROUTE_FAN 16
#define ROUTE_ROOT 1
#define ROUTE_INNER 2
#define ROUTE_BOTTOM (ROUTE_INNER + ROUTE_FAN)
#define ROUTE_LINES (ROUTE_BOTTOM + ROUTE_FAN * ROUTE_FAN)

#define ROUTES_HOLD 0 /* Index of a header word: not 0 if the copied routes are valid */
/* Index of a header word: the kernel's change counter (`fib_seq`) when the routes were copied */
#define ROUTES_MADE 1
/* Index of a header word: the change counter (`fib_seq`) at the last run of the program `weir_see_routes` */
#define ROUTES_SEEN 2

struct route_lines {
	struct line lines[ROUTE_LINES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_lines);
} routes SEC(".maps");

/* Subsets of kernel structs: CO-RE relocates the field offsets to those of the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct netns_ipv4 {
	unsigned int fib_seq;
	bool fib_has_custom_rules;
};
struct net {
	struct netns_ipv4 ipv4;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct ipv4_devconf {
	int data[1]; /* data[0] is not 0 if the interface forwards IPv4 */
};
struct in_device {
	struct ipv4_devconf cnf;
};
struct net_device {
	possible_net_t nd_net;
	struct in_device *ip_ptr;
	void *rx_handler; /* function of a bridge, bond or other master, which takes over received frames; 0: none */
};
struct sk_buff {
	struct net_device *dev;
};
struct nsproxy {
	struct net *net_ns;
};
struct task_struct {
	struct nsproxy *nsproxy;
};
#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;

static __always_inline struct line *copied_routes(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&routes, &first);
}

static __always_inline bool are_changes_counted(struct net *net)
{
	return bpf_core_field_exists(net->ipv4.fib_seq) && bpf_core_field_exists(net->ipv4.fib_has_custom_rules);
}

/* Returns whether the copied routes equal those of the kernel. This needs four conditions: the kernel uses no
 * policy routing rules, no route has changed since the copy, the incoming interface is not a port of a bridge
 * or bond, and it forwards IPv4.
 */
static __always_inline bool is_copy_right(struct __sk_buff *skb, const struct line *header)
{
	struct net_device *device;
	struct net *net;

	if (!settings.copies_routes || !READ_ONCE(header->words[ROUTES_HOLD]))
		return false;
	device = ((struct sk_buff *)bpf_cast_to_kern_ctx(skb))->dev;
	net = device->nd_net.net;
	return are_changes_counted(net) && net->ipv4.fib_seq == header->words[ROUTES_MADE] &&
	       !net->ipv4.fib_has_custom_rules && !device->rx_handler && device->ip_ptr->cnf.data[0];
}

/* Returns the outgoing interface for an address from the copied routes; 0 if the copied routes have no
 * single interface for the address.
 */
static __always_inline __u32 copied_interface(const struct line *lines, address_t address)
{
	const struct line *line = lines + ROUTE_ROOT;
	__u64 above = (__u64)address + 1;
	__u32 at;

	/* With few routes the root has only one key, which selects inner line 0. */
	at = line->words[1] == NONE ? 0 : index_among(line->words, ROUTE_FAN, above);
	line = lines + ROUTE_INNER + at;
	at = at * ROUTE_FAN + index_among(line->words, ROUTE_FAN, above);
	line = lines + ROUTE_BOTTOM + at;
	return line->words[LINE_WORDS / 2 + index_among(line->words, LINE_WORDS / 2, above)];
}

/* Returns the outgoing interface for an address from the copied routes; 0 if the caller must ask the
 * kernel.
 */
static __always_inline __u32 copied_route(struct __sk_buff *skb, address_t address)
{
	struct line *header = copied_routes();

	return header && is_copy_right(skb, header) ? copied_interface(header, address) : 0;
}

/* Stores the kernel's change counter of routes (`fib_seq`) for the calling thread's network namespace.
 * Returns 0 if user space may copy the routes. Returns 1 if the kernel has no change counter, or if the
 * network namespace has policy routing rules.
 */
SEC("syscall")
int weir_see_routes(void *context)
{
	struct net *net = bpf_get_current_task_btf()->nsproxy->net_ns;
	struct line *header = copied_routes();

	if (!header || !settings.copies_routes || !are_changes_counted(net) || net->ipv4.fib_has_custom_rules)
		return 1;
	header->words[ROUTES_SEEN] = net->ipv4.fib_seq;
	return 0;
}

#endif

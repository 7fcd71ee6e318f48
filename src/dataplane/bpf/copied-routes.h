/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_COPIED_ROUTES_H
#define WEIR_COPIED_ROUTES_H

/* A copy of the node's plain routes: by which interface an address is reached. User space makes it and says at which count of
 * changes it did; the kernel counts each change as it makes it. Where the count is another one by now, where packets have more than
 * the routes to go by, and for whatever is no single route by one interface, the kernel's own lookup is asked.
 *
 * Line 0 is the header, line 1 the root. Its 16 keys lead to as many lines, theirs to the bottom: eight keys, then as many interfaces. A key is
 * the first address of an interval.
 */
#define ROUTE_FAN 16
#define ROUTE_ROOT 1
#define ROUTE_INNER 2
#define ROUTE_BOTTOM (ROUTE_INNER + ROUTE_FAN)
#define ROUTE_LINES (ROUTE_BOTTOM + ROUTE_FAN * ROUTE_FAN)

#define ROUTES_HOLD 0 /* words of the header: whether there is a copy, */
#define ROUTES_MADE 1 /* the count of changes when it was made, */
#define ROUTES_SEEN 2 /* and when weir_see_routes ran last */

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

/* As in the kernel, wherever its fields stand there. */
struct netns_ipv4 {
	unsigned int fib_seq;
	bool fib_has_custom_rules;
} __attribute__((preserve_access_index));
struct net {
	struct netns_ipv4 ipv4;
} __attribute__((preserve_access_index));
typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;
struct ipv4_devconf {
	int data[1]; /* the first: forwarding */
} __attribute__((preserve_access_index));
struct in_device {
	struct ipv4_devconf cnf;
} __attribute__((preserve_access_index));
struct net_device {
	possible_net_t nd_net;
	struct in_device *ip_ptr;
} __attribute__((preserve_access_index));
struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));
struct nsproxy {
	struct net *net_ns;
} __attribute__((preserve_access_index));
struct task_struct {
	struct nsproxy *nsproxy;
} __attribute__((preserve_access_index));

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

/* Whether the kernel would go by the routes alone, and by those of the copy. */
static __always_inline bool is_copy_right(struct __sk_buff *skb, const struct line *header)
{
	struct net_device *device;
	struct net *net;

	if (!settings.copies_routes || !READ_ONCE(header->words[ROUTES_HOLD]))
		return false;
	device = ((struct sk_buff *)bpf_cast_to_kern_ctx(skb))->dev;
	net = device->nd_net.net;
	return are_changes_counted(net) && net->ipv4.fib_seq == header->words[ROUTES_MADE] &&
	       !net->ipv4.fib_has_custom_rules && device->ip_ptr->cnf.data[0];
}

/* The interface by which the copy says that an address is reached; 0 where it does not know. */
static __always_inline __u32 copied_interface(const struct line *lines, __u32 address)
{
	const struct line *line = lines + ROUTE_ROOT;
	__u64 above = (__u64)address + 1;
	__u32 at;

	/* Of few routes it has one key. */
	at = line->words[1] == NONE ? 0 : place_among(line->words, ROUTE_FAN, above);
	line = lines + ROUTE_INNER + at;
	at = at * ROUTE_FAN + place_among(line->words, ROUTE_FAN, above);
	line = lines + ROUTE_BOTTOM + at;
	return line->words[LINE_WORDS / 2 + place_among(line->words, LINE_WORDS / 2, above)];
}

/* The interface by which the address is reached, for a packet that came in; 0 where the kernel must be asked. */
static __always_inline __u32 copied_route(struct __sk_buff *skb, __u32 address)
{
	struct line *header = copied_routes();

	return header && is_copy_right(skb, header) ? copied_interface(header, address) : 0;
}

/* Leaves the count of changes in the header, of the calling thread's network namespace. Answers 0 where the kernel has one, and
 * packets may go by the routes alone.
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

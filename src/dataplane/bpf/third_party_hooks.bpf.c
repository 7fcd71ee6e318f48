// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Finds the hooks that IP packets pass when this network namespace forwards them, also the hooks of Weir's
 * guard (its nftables rules). Reads lists in kernel memory, because netlink reports netfilter hooks only if
 * the kernel has CONFIG_NETFILTER_NETLINK_HOOK.
 *
 * Some kernel configurations lack some of these lists, so the BPF program reads such a list only if its field
 * exists. If a later kernel renames the field of a required list, this BPF object does not load. User space
 * then assumes that third-party hooks exist.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "third_party_hooks.h"

/* The hooks are values of the kernel header linux/netfilter.h, DEVICE_UP is IFF_UP of linux/if.h, and
 * ETHERNET and LOOPBACK are types of devices in linux/if_arp.h.
 */
#define HOOK_PREROUTING 0
#define HOOK_FORWARD 2
#define HOOK_POSTROUTING 4
#define DEVICE_UP 1
#define ETHERNET 1
#define LOOPBACK 772
#define XFRM_DIRECTIONS 3
#define XFRM_COUNTS 6
#define XFRM_BLOCK 1
#define HOOKS_MAX 16
#define RULES_MAX 4096
#define DEVICES_MAX (1 << 20)
#define BOTH_FAMILIES 0
#define IPV4 4
#define IPV6 6

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct nf_hook_entry {
	void *hook;
	void *priv;
};

struct bpf_prog_aux {
	__u32 id;
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
};

struct nf_hook_entries {
	__u16 num_hook_entries;
	struct nf_hook_entry hooks[0];
};

struct netns_nf {
	struct nf_hook_entries *hooks_ipv4[5];
	struct nf_hook_entries *hooks_ipv6[5];
};

struct fib_rule {
	struct list_head list;
	__u32 mark;
	__u32 mark_mask;
	__u64 tun_id;
	__u32 pref;
	__u32 table;
};

struct fib_rules_ops {
	struct list_head rules_list;
};

struct netns_ipv4 {
	struct fib_rules_ops *rules_ops;
};

struct netns_ipv6 {
	struct fib_rules_ops *fib6_rules_ops;
};

struct netns_xfrm {
	unsigned int policy_count[XFRM_COUNTS];
	__u8 policy_default[XFRM_DIRECTIONS];
};

struct net {
	struct list_head dev_base_head;
	struct netns_nf nf;
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;
	struct netns_xfrm xfrm;
};

struct net_device {
	struct list_head dev_list;
	int ifindex;
	unsigned int flags;
	unsigned short type;
	void *rx_handler;
	struct nf_hook_entries *nf_hooks_ingress;
	struct nf_hook_entries *nf_hooks_egress;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct nsproxy *nsproxy;
};

#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct others);
} others SEC(".maps");

static const char SYMBOL[] = "%ps";

/* `add_other` and `add_hooks` are not static, because the verifier checks a global function once and a
 * static function again for each call path.
 */
__noinline int add_other(__u32 kind, __u32 family, __u32 id, __u64 function)
{
	__u32 first = 0, index;
	struct others *answer = bpf_map_lookup_elem(&others, &first);
	struct other *other;

	if (!answer)
		return 0;
	index = answer->count++;
	if (index >= OTHERS)
		return 0;
	other = &answer->found[index];
	other->kind = kind;
	other->family = family;
	other->id = id;
	other->function[0] = 0;
	if (function)
		bpf_snprintf(other->function, sizeof(other->function), SYMBOL, &function, sizeof(function));
	return 0;
}

__noinline int add_hooks(__u64 list, __u32 kind, __u32 family, __u32 id)
{
	struct nf_hook_entries *entries = (void *)list;
	__u32 count;

	if (!entries)
		return 0;
	count = BPF_CORE_READ(entries, num_hook_entries);
	for (__u32 index = 0; index < count && index < HOOKS_MAX; index++) {
		__u64 at = (__u64)entries + bpf_core_field_offset(struct nf_hook_entries, hooks) +
			   index * bpf_core_type_size(struct nf_hook_entry);
		struct nf_hook_entry *entry = (void *)at;

		if (kind == OTHER_FORWARD) {
			struct bpf_prog *program = BPF_CORE_READ(entry, priv);

			id = BPF_CORE_READ(program, aux, id);
		}
		add_other(kind, family, id, (__u64)BPF_CORE_READ(entry, hook));
	}
	return 0;
}

/* Not inlined: in an inlined copy, the verifier finds a new state in each iteration of the loop, and rejects
 * the BPF program.
 */
static __noinline int count_device(void)
{
	__u32 first = 0;
	struct others *answer = bpf_map_lookup_elem(&others, &first);

	if (answer)
		answer->devices++;
	return 0;
}

struct walk {
	struct list_head *at;
	struct list_head *end;
	__u32 family;
};

static long look_at_device(__u32 index, struct walk *walk)
{
	struct list_head *at = walk->at;
	struct net_device *device;
	__u32 ifindex, type;

	if (at == walk->end)
		return 1;
	device = (void *)at - bpf_core_field_offset(struct net_device, dev_list);
	walk->at = BPF_CORE_READ(at, next);
	count_device();
	ifindex = BPF_CORE_READ(device, ifindex);
	type = BPF_CORE_READ(device, type);
	add_hooks((__u64)BPF_CORE_READ(device, nf_hooks_ingress), OTHER_INGRESS, BOTH_FAMILIES, ifindex);
	if (bpf_core_field_exists(device->nf_hooks_egress))
		add_hooks((__u64)BPF_CORE_READ(device, nf_hooks_egress), OTHER_EGRESS, BOTH_FAMILIES, ifindex);
	if (BPF_CORE_READ(device, rx_handler))
		add_other(OTHER_RECEIVER, BOTH_FAMILIES, ifindex, (__u64)BPF_CORE_READ(device, rx_handler));
	if (type != ETHERNET && type != LOOPBACK && BPF_CORE_READ(device, flags) & DEVICE_UP)
		add_other(OTHER_NO_ETHERNET, BOTH_FAMILIES, ifindex, 0);
	return 0;
}

static long look_at_rule(__u32 index, struct walk *walk)
{
	struct list_head *at = walk->at;
	struct fib_rule *rule;

	if (at == walk->end)
		return 1;
	rule = (void *)at - bpf_core_field_offset(struct fib_rule, list);
	walk->at = BPF_CORE_READ(at, next);
	if (BPF_CORE_READ(rule, pref) == DIVERT_RULE && BPF_CORE_READ(rule, table) == DIVERT_RULE)
		return 0; /* this is Weir's own rule for diverted packets, so do not report it */
	if (BPF_CORE_READ(rule, mark) || BPF_CORE_READ(rule, mark_mask) || BPF_CORE_READ(rule, tun_id))
		add_other(OTHER_RULE, walk->family, BPF_CORE_READ(rule, pref), 0);
	return 0;
}

/* Returns false if the BPF program has not read all rules. */
static __always_inline bool look_at_rules(struct fib_rules_ops *rules, __u32 family)
{
	struct walk walk = { .family = family };

	if (!rules)
		return true;
	walk.end = (void *)rules + bpf_core_field_offset(struct fib_rules_ops, rules_list);
	walk.at = BPF_CORE_READ(rules, rules_list.next);
	bpf_loop(RULES_MAX, look_at_rule, &walk, 0);
	return walk.at == walk.end;
}

static __always_inline void look_at_xfrm(struct net *net)
{
	__u32 counts[XFRM_COUNTS] = {}, count = 0;
	__u8 defaults[XFRM_DIRECTIONS + 1] = {};

	if (!bpf_core_field_exists(net->xfrm))
		return;
	BPF_CORE_READ_INTO(&counts, net, xfrm.policy_count);
	for (int index = 0; index < XFRM_COUNTS; index++)
		count += counts[index];
	if (count)
		add_other(OTHER_XFRM, BOTH_FAMILIES, count, 0);
	if (!bpf_core_field_exists(net->xfrm.policy_default))
		return;
	bpf_probe_read_kernel(defaults, XFRM_DIRECTIONS, (void *)net + bpf_core_field_offset(struct net, xfrm.policy_default));
	if (defaults[0] == XFRM_BLOCK || defaults[1] == XFRM_BLOCK || defaults[2] == XFRM_BLOCK)
		add_other(OTHER_XFRM, BOTH_FAMILIES, 0, 0);
}

/* Collects the hooks in the network namespace of the calling thread. Returns 0 if the BPF program has read
 * the lists of routing rules and of devices to their end. Of each netfilter hook, reads at most HOOKS_MAX
 * functions. The BPF program has the type raw_tp, because the kernel runs this type under the RCU read lock,
 * so that the kernel does not free list elements meanwhile.
 */
SEC("raw_tp")
int weir_others(void *context)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct net *net = BPF_CORE_READ(task, nsproxy, net_ns);
	struct walk walk = {};
	__u32 first = 0;
	struct others *answer = bpf_map_lookup_elem(&others, &first);

	if (!answer || !net)
		return 1;
	answer->count = answer->devices = 0;
	add_hooks((__u64)BPF_CORE_READ(net, nf.hooks_ipv4[HOOK_PREROUTING]), OTHER_PREROUTING, IPV4, 0);
	add_hooks((__u64)BPF_CORE_READ(net, nf.hooks_ipv4[HOOK_FORWARD]), OTHER_FORWARD, IPV4, 0);
	add_hooks((__u64)BPF_CORE_READ(net, nf.hooks_ipv4[HOOK_POSTROUTING]), OTHER_POSTROUTING, IPV4, 0);
	add_hooks((__u64)BPF_CORE_READ(net, nf.hooks_ipv6[HOOK_PREROUTING]), OTHER_PREROUTING, IPV6, 0);
	add_hooks((__u64)BPF_CORE_READ(net, nf.hooks_ipv6[HOOK_FORWARD]), OTHER_FORWARD, IPV6, 0);
	add_hooks((__u64)BPF_CORE_READ(net, nf.hooks_ipv6[HOOK_POSTROUTING]), OTHER_POSTROUTING, IPV6, 0);
	if (bpf_core_field_exists(net->ipv4.rules_ops) && !look_at_rules(BPF_CORE_READ(net, ipv4.rules_ops), IPV4))
		return 2;
	if (bpf_core_field_exists(net->ipv6.fib6_rules_ops) && !look_at_rules(BPF_CORE_READ(net, ipv6.fib6_rules_ops), IPV6))
		return 2;
	look_at_xfrm(net);
	walk.end = (void *)net + bpf_core_field_offset(struct net, dev_base_head);
	walk.at = BPF_CORE_READ(net, dev_base_head.next);
	bpf_loop(DEVICES_MAX, look_at_device, &walk, 0);
	return walk.at == walk.end && answer->devices ? 0 : 3;
}

char LICENSE[] SEC("license") = "GPL";

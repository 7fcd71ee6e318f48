/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The format in which the BPF program `weir_others` returns the hooks that it finds.
 * src/dataplane/forwarding/third-party-hooks.ts decodes this format.
 */
#ifndef WEIR_THIRD_PARTY_HOOKS_H
#define WEIR_THIRD_PARTY_HOOKS_H

enum other_kind {
	OTHER_PREROUTING = 1, /* a function on the netfilter hook prerouting */
	OTHER_FORWARD = 2, /* the hook forward; `id` is that of the BPF program if `function` is nf_hook_run_bpf, else it has no meaning */
	OTHER_POSTROUTING = 3,
	OTHER_INGRESS = 4, /* a netfilter function on the ingress of a device */
	OTHER_EGRESS = 5,
	OTHER_RECEIVER = 6,    /* the receive handler of a device: a bridge, bond or macvlan takes its frames */
	OTHER_NO_ETHERNET = 7, /* a device that is up and is not Ethernet */
	OTHER_RULE = 8,        /* a policy routing rule that selects by mark or tunnel; `id` is its preference */
	OTHER_XFRM = 9,        /* `id` is the number of IPsec policies, or 0 if IPsec blocks packets without a policy */
};

/* Preference and routing table of the rule that src/dataplane/routes/divert.ts adds */
#define DIVERT_RULE 8353

#define FUNCTION_BYTES 52
struct other {
	enum other_kind kind;
	__u32 family; /* the IP family whose packets pass the hook: 4 or 6; 0: the packets of both */
	__u32 id; /* for a hook on a device: the ifindex of the device */
	char function[FUNCTION_BYTES];
};

#define OTHERS 1024
struct others {
	__u32 count;   /* number of hooks; above OTHERS if `found` has no room for all hooks */
	__u32 devices; /* number of network devices whose hooks the BPF program has read */
	struct other found[OTHERS];
};

_Static_assert(sizeof(struct other) == 64, "no padding in another");
_Static_assert(sizeof(struct others) == 8 + OTHERS * 64, "no padding in others");

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Results of weir_others; src/dataplane/forwarding/third-party-hooks.ts reads them. */
#ifndef WEIR_THIRD_PARTY_HOOKS_H
#define WEIR_THIRD_PARTY_HOOKS_H

enum other_kind {
	OTHER_PREROUTING = 1, /* netfilter hooks of IPv4 */
	OTHER_FORWARD = 2,
	OTHER_POSTROUTING = 3,
	OTHER_INGRESS = 4, /* netfilter hooks of a device */
	OTHER_EGRESS = 5,
	OTHER_RECEIVER = 6,    /* receives the packets of a device: a bridge, a bond, a macvlan */
	OTHER_NO_ETHERNET = 7, /* the device is up, and is not Ethernet */
	OTHER_RULE = 8,        /* a policy routing rule by marks or tunnels; `id`: its preference */
	OTHER_XFRM = 9,        /* IPsec policies; `id`: their number, or 0: packets without a policy are blocked */
};

#define DIVERT_RULE 8353 /* preference and table of the rule of src/dataplane/routes/divert.ts */

#define FUNCTION_BYTES 56
struct other {
	enum other_kind kind;
	__u32 id; /* for devices: the ifindex */
	char function[FUNCTION_BYTES];
};

#define OTHERS 1024
struct others {
	__u32 count;   /* number of all hooks, even if more than `found` can hold */
	__u32 devices; /* number of devices that were visited */
	struct other found[OTHERS];
};

_Static_assert(sizeof(struct other) == 64, "no padding in another");
_Static_assert(sizeof(struct others) == 8 + OTHERS * 64, "no padding in others");

#endif

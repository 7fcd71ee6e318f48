/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What weir_others answers; src/dataplane/forwarding/third-party-hooks.ts reads it. */
#ifndef WEIR_THIRD_PARTY_HOOKS_H
#define WEIR_THIRD_PARTY_HOOKS_H

enum other_kind {
	OTHER_PREROUTING = 1, /* netfilter's hooks of IPv4 */
	OTHER_FORWARD = 2,
	OTHER_POSTROUTING = 3,
	OTHER_INGRESS = 4, /* and those of a device */
	OTHER_EGRESS = 5,
	OTHER_RECEIVER = 6,    /* takes what comes in by a device: a bridge, a bond, a macvlan */
	OTHER_NO_ETHERNET = 7, /* the device is up, and no Ethernet */
	OTHER_RULE = 8,        /* of policy routing, by marks or tunnels; `id`: its preference */
	OTHER_XFRM = 9,        /* policies of IPsec; `id`: how many, or 0: nothing passes without one */
};

#define DIVERT_RULE 8353 /* preference and table of the rule of src/dataplane/routes/divert.ts */

#define FUNCTION_BYTES 56
struct other {
	enum other_kind kind;
	__u32 id; /* of devices: the ifindex */
	char function[FUNCTION_BYTES];
};

#define OTHERS 1024
struct others {
	__u32 count;   /* of all, also where there are more than `found` takes */
	__u32 devices; /* that were looked at */
	struct other found[OTHERS];
};

_Static_assert(sizeof(struct other) == 64, "no padding in another");
_Static_assert(sizeof(struct others) == 8 + OTHERS * 64, "no padding in others");

#endif

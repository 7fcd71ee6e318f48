// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The BPF object for IPv6, from the same headers as weir.bpf.c. It has the classification of packets alone:
 * no program of a hook yet.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

#include "ipv6/address.h"
#include "weir.h"
#include "maps.h"
#include "classify/image_search.h"
#include "ipv6/address_class.h"
#include "ipv6/address_lines.h"
#include "classify/grants.h"
#include "classify/members.h"
#include "classify/rules.h"
#include "ipv6/icmp.h"
#include "parse/headers.h"
#include "classify/drop_reason.h"
#include "classify/classify_packet.h"
#include "ipv6/proof_packet.h"
#include "classify/prove.h"
#include "ipv6/layout.h"

char LICENSE[] SEC("license") = "GPL";

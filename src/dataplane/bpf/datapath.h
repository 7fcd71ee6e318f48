/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The datapath of one IP family. A source file defines FAMILY_HEADER, which selects the folder with the code
 * of that family, and includes this file.
 */
#ifndef WEIR_DATAPATH_H
#define WEIR_DATAPATH_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

#include FAMILY_HEADER(address.h)
#include "weir.h"
#include "outcome.h"
#include "maps.h"
#include FAMILY_HEADER(hash.h)
#include "clock.h"
#include "report/counters.h"
#include "upgrade/handover.h"
#include "classify/image_search.h"
#include FAMILY_HEADER(address_class.h)
#include "classify/mix.h"
#include FAMILY_HEADER(address_lines.h)
#include "classify/grants.h"
#include "classify/members.h"
#include "classify/rules.h"
#include FAMILY_HEADER(icmp.h)
#include "parse/headers.h"
#include "parse/discovery.h"
#include "route/bridge_port.h"
#include FAMILY_HEADER(header.h)
#include FAMILY_HEADER(link.h)
#include "parse/parse.h"
#include FAMILY_HEADER(copied_routes.h)
#include FAMILY_HEADER(lookup.h)
#include "route/next_hop.h"
#include "route/checksum.h"
#include FAMILY_HEADER(send.h)
#include "route/send.h"
#include "report/rule_hits.h"
#include "classify/drop_reason.h"
#include "report/wire_destination.h"
#include "report/events.h"
#include "flow/flow_table.h"
#include "flow/flow_share.h"
#include "flow/flush.h"
#include "flow/flow_key.h"
#include "flow/claim_line.h"
#include "flow/tcp_numbers.h"
#include "flow/track_state.h"
#include "flow/open_flow.h"
#include "inspect/sockets.h"
#include "nat/aliases.h"
#include FAMILY_HEADER(conntrack.h)
#include "nat/translation.h"
#include "path/fast_path.h"
#include FAMILY_HEADER(fragment.h)
#include "parse/fragments.h"
#include "classify/classify_packet.h"
#include "path/drop_or_pass.h"
#include "inspect/divert_dns.h"
#include "inspect/splice.h"
#include "inspect/splice_translate.h"
#include "inspect/splice_challenge.h"
#include "inspect/splice_reset.h"
#include "inspect/splice_forward.h"
#include "inspect/inspect.h"
#include FAMILY_HEADER(quoted.h)
#include "path/icmp_errors.h"
#include "inspect/own_output.h"
#include "path/found_flow.h"
#include "path/full_path.h"
#include "path/fast_path_new_flow.h"
#include "flow/sweep.h"
#include FAMILY_HEADER(proof_packet.h)
#include "classify/prove.h"
#include "path/ipv6_programs.h"
#include "path/hooks.h"

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_OUTCOME_H
#define WEIR_OUTCOME_H

/* Return values of the functions that handle a packet. Only the first three end the handling; they have the
 * numbers of the TC actions, so that `action_of` costs no instruction where the compiler knows the outcome.
 * The others start above every drop reason, since `classify_icmp_error` returns either of the two.
 */
enum outcome {
	OUTCOME_PASS = TC_ACT_UNSPEC, /* to the next program, then to the stack */
	OUTCOME_DROP = TC_ACT_SHOT,
	OUTCOME_SENT = TC_ACT_REDIRECT, /* sent directly, without the stack */

	TO_PREDECESSOR = 0x100, /* refused here, while the older datapath may still have the flow (handover.h) */
	NOT_ESTABLISHED,               /* not a packet in the middle of an established flow */
	OPENS_FLOW,             /* a SYN or a UDP packet, and the table has no flow for it */
	NOT_DIVERTED,           /* a DNS lookup addressed to the node itself */
	NOT_INSPECTED,          /* no socket of the service plane accepts it */
	NOT_JOINED,             /* not part of a spliced connection */
	NOT_RELATED,            /* an ICMP error that quotes no known flow */
	ABOUT_JOINED,           /* an ICMP error that quotes a spliced connection */
	ABOUT_INSPECTED,        /* an ICMP error that quotes an inspected connection */
};

_Static_assert(TO_PREDECESSOR >= COUNTERS - COUNT_DROPS, "no outcome has the number of a drop reason");

/* The only place where an outcome becomes a TC action. An outcome that no caller handled drops the packet.
 */
static __always_inline int action_of(enum outcome outcome)
{
	switch (outcome) {
	case OUTCOME_PASS:
	case OUTCOME_DROP:
	case OUTCOME_SENT:
		return outcome;
	default:
		return TC_ACT_SHOT;
	}
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_OUTCOME_H
#define WEIR_OUTCOME_H

/* Results of the functions that handle a packet. Only OUTCOME_PASS, OUTCOME_DROP and OUTCOME_SENT are final.
 * These three have the numbers of the TC actions, so that the compiler can reduce `action_of` to no code. The
 * other numbers start above every drop reason, because `classify_icmp_error` returns either a drop reason or
 * an outcome.
 */
enum outcome {
	OUTCOME_PASS = TC_ACT_UNSPEC, /* continue with the next TC program, then with the network stack */
	OUTCOME_DROP = TC_ACT_SHOT,
	OUTCOME_SENT = TC_ACT_REDIRECT, /* sent directly, without the network stack */

	TO_PREDECESSOR = 0x100, /* this datapath refuses the packet, but the predecessor datapath may have a flow that allows it (handover.h) */
	NOT_ESTABLISHED,               /* the packet is not in the middle of an established flow: continue with the full path */
	OPENS_FLOW,             /* a TCP SYN or a UDP packet that has no flow */
	NOT_DIVERTED,           /* a DNS query that is addressed to the node itself */
	NOT_INSPECTED,          /* no socket of the service plane accepts the packet */
	NOT_SPLICED,             /* not a packet of a spliced connection (splice.h) */
	NOT_RELATED,            /* an ICMP error that quotes no known flow */
	ABOUT_SPLICED,           /* an ICMP error that quotes a spliced connection (splice.h) */
	ABOUT_INSPECTED,        /* an ICMP error that quotes an inspected connection */
};

_Static_assert(TO_PREDECESSOR >= COUNTERS - COUNT_DROPS, "no outcome has the number of a drop reason");

/* Converts an outcome to a TC action. An outcome that is not final means that a caller forgot to handle the
 * outcome; the result is then a drop.
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

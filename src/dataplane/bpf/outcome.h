/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_OUTCOME_H
#define WEIR_OUTCOME_H

/* Every answer of a function that handles a packet. Only the first three end the handling; they have the numbers of TC's
 * actions, so that `action_of` costs no instruction where the compiler knows the outcome. The others start above every
 * drop reason, since `judge_error` returns either of the two.
 */
enum outcome {
	OUTCOME_PASS = TC_ACT_UNSPEC, /* to the next program, then to the stack */
	OUTCOME_DROP = TC_ACT_SHOT,
	OUTCOME_SENT = TC_ACT_REDIRECT, /* without the stack */

	TO_PREDECESSOR = 0x100, /* refused here, while the older datapath still has a say (handover.h) */
	NOT_BUSY,               /* not in the middle of an established flow */
	OPENS_FLOW,             /* a SYN, or UDP, and there is no flow that it could be of */
	NOT_DIVERTED,           /* a lookup for the node itself */
	NOT_INSPECTED,          /* no socket of the service plane takes it */
	NOT_JOINED,             /* of no connection that was joined */
	NOT_RELATED,            /* an ICMP error that quotes no flow */
	ABOUT_JOINED,           /* one that quotes a joined connection, */
	ABOUT_INSPECTED,        /* or an inspected one */
};

_Static_assert(TO_PREDECESSOR >= COUNTERS - COUNT_DROPS, "no outcome has the number of a drop reason");

/* The one place where an outcome becomes an action of TC. An outcome that no caller handled drops the packet. */
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

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_DROP_REASON_H
#define WEIR_DROP_REASON_H

/* Returns the drop reason for a verdict, or DROP_NONE if the packet passes. An audited redirect passes
 * without inspection (D4).
 */
static __always_inline enum drop_reason refusal_by(enum verdict verdict, bool audited)
{
	switch (verdict) {
	case VERDICT_ALLOW:
	case VERDICT_AUDIT:
		return DROP_NONE;
	case VERDICT_DENY:
		return DROP_POLICY_DENY;
	case VERDICT_REDIRECT:
		/* The service plane (TLS and HTTP inspection) did not take this packet, so the verdict redirect refuses it.
		 * An audited packet passes.
		 */
		return audited               ? DROP_NONE
		       : settings.plane_port ? DROP_NOT_INSPECTED
					     : DROP_SERVICE_PLANE_ABSENT;
	default:
		return DROP_PROGRAM_DAMAGED;
	}
}

/* Returns the drop reason for a verdict word, or DROP_NONE if the word lets the packet pass. */
static __always_inline enum drop_reason refusal_of(__u32 word)
{
	return refusal_by(word & 7, word & AUDITED);
}

/* Returns whether a flow with this `judgement` is suspended: a later policy refuses it (found_flow.h). */
static __always_inline bool is_suspended(__u64 judgement)
{
	return judgement && refusal_of(judgement);
}

#endif

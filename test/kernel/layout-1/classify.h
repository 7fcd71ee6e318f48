/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CLASSIFY_H
#define WEIR_CLASSIFY_H

#define AUDITED 8
#define ALLOWED_PORT 8000

/* The fixed policy of the test. This function replaces the search in a program image. */
static __noinline __u32 classify(__u32 base, __u32 source, __u32 destination, __u32 key, __u32 source_port)
{
	return (key & 0xffff) == ALLOWED_PORT ? VERDICT_ALLOW : VERDICT_DENY;
}

#endif

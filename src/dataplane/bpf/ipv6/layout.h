/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The sizes of the structs that contain addresses. */
#ifndef WEIR_IPV6_LAYOUT_H
#define WEIR_IPV6_LAYOUT_H

_Static_assert(sizeof(struct settings) == 680, "no padding in settings");
_Static_assert(sizeof(struct proof_packet) == 48, "an array's values are a multiple of 8 bytes apart");
_Static_assert(sizeof(struct flow_key) == 40, "compared as five words");
_Static_assert(sizeof(struct flow) == 128, "two cache lines");
_Static_assert(sizeof(struct way) == 32, "no padding in a way");
_Static_assert(sizeof(struct join_key) == 40, "copied as a whole");
_Static_assert(sizeof(struct grant_line) == 64, "a line is a cache line");
_Static_assert(sizeof(struct member_line) == 64, "a line is a cache line");

#endif

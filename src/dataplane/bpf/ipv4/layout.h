/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The sizes of the structs that contain addresses. */
#ifndef WEIR_IPV4_LAYOUT_H
#define WEIR_IPV4_LAYOUT_H

_Static_assert(sizeof(struct settings) == 280, "no padding in settings");
_Static_assert(sizeof(struct proof_packet) == 24, "an array's values are a multiple of 8 bytes apart");
_Static_assert(sizeof(struct flow_key) == 16, "compared as two words");
_Static_assert(sizeof(struct flow) == 64, "a cache line");
_Static_assert(sizeof(struct way) == 16, "no padding in a way");
_Static_assert(sizeof(struct fragment_key) == 16, "no padding in a hash key");
_Static_assert(sizeof(struct join_key) == 12, "no padding in a hash key");
_Static_assert(sizeof(struct nat_alias) == 64, "a cache line");
_Static_assert(sizeof(struct grant_line) == 64, "a line is a cache line");
_Static_assert(sizeof(struct member_line) == 64, "a line is a cache line");

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_MIX_H
#define WEIR_MIX_H

/* Scatters the 32-bit words of addresses before they are multiplied by random factors, for the maps `grants`
 * and `members`. User space computes the same number. Without it, a multiplication could put consecutive
 * addresses into few cache lines.
 */
static __always_inline __u64 mix(__u32 word)
{
	word ^= word >> 16;
	word *= 0x85ebca6b;
	word ^= word >> 13;
	word *= 0xc2b2ae35;
	return word ^ word >> 16;
}

#endif

/**
 * Bits of packet marks in tests. The guard (nftables rules of Weir) drops packets without the guard bit, the
 * lowest bit of the mask. The third bit marks packets of sockets that are exempt from the policy.
 */
export const MARK_MASK = 0x00f0_0000;
export const GUARD_BIT = 0x0010_0000;
export const EXEMPT_BIT = 0x0040_0000;

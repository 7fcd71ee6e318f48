/**
 * Bits of packet marks in tests. The guard bit is the lowest bit of the mask; the bit of exempt sockets is
 * the third.
 */
export const MARK_MASK = 0x00f0_0000;
export const GUARD_BIT = 0x0010_0000;
export const EXEMPT_BIT = 0x0040_0000;

/** Bits of packet marks in tests: the guard's is the lowest of the mask, that of exempt sockets the third. */
export const MARK_MASK = 0x00f0_0000;
export const GUARD_BIT = 0x0010_0000;
export const EXEMPT_BIT = 0x0040_0000;

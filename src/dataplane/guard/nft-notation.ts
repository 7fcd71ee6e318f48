/**
 * Returns a value of `skb->priority` in the notation of nftables: two 16-bit halves in hexadecimal,
 * separated by a colon.
 */
export function priorityClass(priority: number): string {
  return `${(priority >>> 16).toString(16)}:${(priority & 0xffff).toString(16)}`;
}

/** Returns 32 bits in hexadecimal. `>>> 0` makes the number unsigned, because `~mask` is negative. */
export function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16)}`;
}

/** Returns the nftables expression for "the packet mark has one of these bits". */
export function anyBit(bits: number): string {
  return `meta mark & ${hex(bits)} != 0`;
}

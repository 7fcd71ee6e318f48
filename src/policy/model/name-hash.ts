/**
 * The initial hash. A name is hashed from its last byte to its first, so that one pass hashes all its
 * suffixes.
 */
export const HASH_OF_END = 0x811c_9dc5 | 0;

/** One step of FNV-1a. */
export function hashWith(hash: number, byte: number): number {
  return Math.imul(hash ^ byte, 0x0100_0193);
}

/** The first slot to probe in a table of `slots` slots: a power of two, at least two. */
export function slotOf(hash: number, slots: number): number {
  return Math.imul(hash ^ (hash >>> 15), 0x85eb_ca6b) >>> Math.clz32(slots - 1);
}

/**
 * The initial value of the hash of a DNS name. `hashWith` adds the bytes of the name from the last to the
 * first, so one pass over a name computes the hashes of all its suffixes.
 */
export const HASH_OF_END = 0x811c_9dc5 | 0;

/** Adds one byte to a hash (FNV-1a). */
export function hashWith(hash: number, byte: number): number {
  return Math.imul(hash ^ byte, 0x0100_0193);
}

/**
 * Returns the hash-table slot where the search for a hash begins. `slots` is the number of slots: a power of
 * two, and at least two.
 */
export function slotOf(hash: number, slots: number): number {
  return Math.imul(hash ^ (hash >>> 15), 0x85eb_ca6b) >>> Math.clz32(slots - 1);
}

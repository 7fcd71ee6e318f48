/** Numbers of `bpf/classify/grants.h`; a test compares them with the BTF of the object. */
export const LINE = { words: 16, longs: 8 } as const;
export const PLACES = 5;
export const PROBES = 8;
export const SET_PLACES = 7;
export const MAX_SET_LINES = 32;
/** The maximum number of patterns that one address can be granted to. */
export const MAX_PATTERNS_OF_ADDRESS = SET_PLACES * MAX_SET_LINES;
export const SET = 0x8000_0000;
const EXPIRY_SHIFT = 27n;
const EXPIRY_UNIT_NS = 2 ** Number(EXPIRY_SHIFT);
const LATEST = 2 ** 32 - 1;

/** Offsets in line 0, in words. */
export const HEADER = { multiplier: 0, addend: 2, homes: 4 } as const;
/** Offsets in a line of the table, in words; `grants` in 64-bit units. */
export const TABLE_LINE = { spilled: 0, addresses: 1, grants: 3 } as const;
/** Offsets in a line of a set, in words; `grants` in 64-bit units. */
export const SET_LINE = { grants: 0, next: 14 } as const;
/** Size of a pattern and offsets in it, in words. */
export const PATTERN = { words: 8, names: 0, digest: 2, digestBytes: 24 } as const;

/** Patterns that can be in use at once: those of two programs, and some that are being removed. */
export const PATTERNS = 1 << 18;

/**
 * Lines that addresses hash to: two addresses for a line of five places, so that each address is near the
 * line that it hashes to.
 */
function homesFor(capacity: number): number {
  return Math.ceil(capacity / 2);
}

/**
 * Lines of the map: the header, the table with `PROBES - 1` lines behind the last home, and a set for each
 * address.
 */
export function linesFor(capacity: number): number {
  return 1 + homesFor(capacity) + PROBES - 1 + capacity;
}

/** The capacity that `linesFor` was called with. */
export function capacityOf(lines: number): number {
  const least = Math.floor(((lines - PROBES - 1) * 2) / 3);
  for (let capacity = least; capacity <= least + 2; capacity++) if (linesFor(capacity) === lines) return capacity;
  throw new RangeError(`no capacity of learned addresses takes ${lines} lines`);
}

export function regionsFor(capacity: number): { readonly homes: number; readonly sets: number; readonly end: number } {
  const homes = homesFor(capacity);
  return { homes, sets: homes + PROBES, end: linesFor(capacity) };
}

/**
 * Converts a time of the monotonic clock to the unit of grants. Rounds down, so that no grant lasts too long.
 * A time before the start of the machine becomes 0: its low 32 bits would be a time in the future.
 */
export function expiryOf(monotonicNs: bigint | number): number {
  const units = typeof monotonicNs === 'bigint' ? Number(monotonicNs >> EXPIRY_SHIFT) : monotonicNs / EXPIRY_UNIT_NS;
  return Math.min(Math.max(Math.floor(units), 0), LATEST);
}

export function timeOf(expiry: number): bigint {
  return BigInt(expiry) << EXPIRY_SHIFT;
}

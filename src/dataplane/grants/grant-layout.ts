/** Numbers of `bpf/classify/grants.h`; a test holds the two together through the object's BTF. */
export const LINE = { words: 16, longs: 8 } as const;
export const PLACES = 5;
export const PROBES = 8;
export const SET_PLACES = 7;
export const MAX_SET_LINES = 32;
/** An address is granted to at most so many patterns. */
export const MAX_PATTERNS_OF_ADDRESS = SET_PLACES * MAX_SET_LINES;
export const SET = 0x8000_0000;
const EXPIRY_SHIFT = 27n;
const EXPIRY_UNIT_NS = 2 ** Number(EXPIRY_SHIFT);
const LATEST = 2 ** 32 - 1;

/** Words of line 0. */
export const HEADER = { multiplier: 0, addend: 2, homes: 4 } as const;
/** Of a line of the table: words, but for `grants`, which are longs. */
export const TABLE_LINE = { spilled: 0, addresses: 1, grants: 3 } as const;
/** Of a set: words, but for `grants`, which are longs. */
export const SET_LINE = { grants: 0, next: 14 } as const;
/** Words of a pattern. */
export const PATTERN = { words: 8, names: 0, digest: 2, digestBytes: 24 } as const;

/** Patterns that may be in use at once: those of two programs, and some that are on their way out. */
export const PATTERNS = 1 << 18;

/** Lines that the addresses hash to, for so many addresses: two to a line of five, so that none is far from home. */
function homesFor(capacity: number): number {
  return Math.ceil(capacity / 2);
}

/** Lines of the whole map: the header, the table with room behind the last home, and a set for each address. */
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

/** A time of the monotonic clock as it stands in a grant: rounded down, so that nothing is granted too long. One before the
 * machine's start is its start: 32 bits of it would be a time to come. */
export function expiryOf(monotonicNs: bigint | number): number {
  const units = typeof monotonicNs === 'bigint' ? Number(monotonicNs >> EXPIRY_SHIFT) : monotonicNs / EXPIRY_UNIT_NS;
  return Math.min(Math.max(Math.floor(units), 0), LATEST);
}

export function timeOf(expiry: number): bigint {
  return BigInt(expiry) << EXPIRY_SHIFT;
}

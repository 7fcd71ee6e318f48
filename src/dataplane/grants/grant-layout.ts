/**
 * Constants of the BPF map `grants`; they must equal those in `bpf/classify/grants.h`. A test compares the
 * struct sizes and field offsets with the BTF of the BPF object.
 */
export const LINE = { words: 16, longs: 8 } as const;
export const PLACES = 5;
export const PROBES = 8;
export const SET_PLACES = 7;
export const MAX_SET_LINES = 32;
/** The maximum number of hostname patterns that can have a grant for the same address. */
export const MAX_PATTERNS_OF_ADDRESS = SET_PLACES * MAX_SET_LINES;
export const SET = 0x8000_0000;
const EXPIRY_SHIFT = 27n;
const EXPIRY_UNIT_NS = 2 ** Number(EXPIRY_SHIFT);
const LATEST = 2 ** 32 - 1;

/** Offsets of the fields of `struct grant_header`, which is line 0 of the map, in 32-bit words. */
export const HEADER = { multiplier: 0, addend: 2, homes: 4 } as const;
/** Offsets of the fields of `struct grant_line`: in 32-bit words, but `grants` in 64-bit words. */
export const TABLE_LINE = { spilled: 0, addresses: 1, grants: 3 } as const;
/** Offsets of the fields of `struct grant_set`: `next` in 32-bit words, `grants` in 64-bit words. */
export const SET_LINE = { grants: 0, next: 14 } as const;
/** Size of `struct pattern` and offsets of its fields, in 32-bit words; `digestBytes` in bytes. */
export const PATTERN = { words: 8, names: 0, digest: 2, digestBytes: 24 } as const;

/** Size of an entry of the map `third_names`, in 32-bit words; the name is in the first word. */
export const THIRD_WORDS = 2;

/**
 * Number of entries of the map `patterns`. Hostname patterns of the compiled policies in all slots need an
 * entry. A removed pattern keeps its entry until no grant has its number.
 */
export const PATTERNS = 1 << 18;

/**
 * Returns the number of home lines for a capacity in addresses. A home line has room for five addresses.
 * There is one home line for each two addresses of the capacity, so that most addresses are stored in their
 * home line.
 */
function homesFor(capacity: number): number {
  return Math.ceil(capacity / 2);
}

/**
 * Returns the number of cache lines of the map `grants`: the header, the home lines, and `PROBES - 1` lines
 * for addresses whose home line is full. In addition, the map has one line for a set of grants for each
 * address of the capacity.
 */
export function linesFor(capacity: number): number {
  return 1 + homesFor(capacity) + PROBES - 1 + capacity;
}

/** Returns the capacity in addresses of a map with this number of cache lines: the inverse of `linesFor`. */
export function capacityOf(lines: number): number {
  const least = Math.floor(((lines - PROBES - 1) * 2) / 3);
  for (let capacity = least; capacity <= least + 2; capacity++) if (linesFor(capacity) === lines) return capacity;
  throw new RangeError(`compute the capacity of the map grants: no capacity needs a map of ${lines} cache lines`);
}

export function regionsFor(capacity: number): { readonly homes: number; readonly sets: number; readonly end: number } {
  const homes = homesFor(capacity);
  return { homes, sets: homes + PROBES, end: linesFor(capacity) };
}

/**
 * Converts a time in nanoseconds on the monotonic clock to expiry units of 2^27 ns. Rounds down, so that no
 * grant is valid after its expiry. A negative time becomes 0; its low 32 bits would be a time in the future.
 */
export function expiryOf(monotonicNs: bigint | number): number {
  const units = typeof monotonicNs === 'bigint' ? Number(monotonicNs >> EXPIRY_SHIFT) : monotonicNs / EXPIRY_UNIT_NS;
  return Math.min(Math.max(Math.floor(units), 0), LATEST);
}

export function timeOf(expiry: number): bigint {
  return BigInt(expiry) << EXPIRY_SHIFT;
}

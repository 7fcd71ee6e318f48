import type { Family } from '#contracts/policy/policy-model.js';

/**
 * Constants of the BPF map `grants`; they must equal those in `bpf/classify/grants.h`. A test compares the
 * struct sizes and field offsets with the BTF of the BPF object.
 */
export const LINE = { words: 16, longs: 8 } as const;
export const SET_PLACES = 7;
export const MAX_SET_LINES = 32;
/** The maximum number of hostname patterns that can have a grant for the same address. */
export const MAX_PATTERNS_OF_ADDRESS = SET_PLACES * MAX_SET_LINES;
export const SET = 0x8000_0000;
const EXPIRY_SHIFT = 27n;
const EXPIRY_UNIT_NS = 2 ** Number(EXPIRY_SHIFT);
const EARLIEST = 1;
const LATEST = 2 ** 32 - 1;

/**
 * Offsets of the fields of `struct grant_header`, which is line 0 of the map, in 32-bit words. Only IPv6 has
 * `others`.
 */
export const HEADER = { multiplier: 0, addend: 2, homes: 4, others: 10 } as const;

/** The properties of the map `grants` of one family. */
export type GrantLayout = {
  /** Number of addresses in one cache line. */
  readonly places: number;
  /** Maximum number of cache lines that a search for an address reads, from its home line on. */
  readonly probes: number;
  /**
   * Number of home lines for each address of the capacity, so that most addresses are in their home line.
   */
  readonly homesOfAddress: number;
  /** Number of random words that `writeHeader` takes. */
  readonly randomWords: number;
  /** Offsets of the fields of `struct grant_line`: in 32-bit words, but `grants` in 64-bit words. */
  readonly line: { readonly spilled: number; readonly addresses: number; readonly grants: number };
};
export const GRANT_LAYOUTS: Readonly<Record<Family, GrantLayout>> = {
  ipv4: { places: 5, probes: 8, homesOfAddress: 1 / 2, randomWords: 4, line: { spilled: 0, addresses: 1, grants: 3 } },
  ipv6: {
    places: 2,
    probes: 16,
    homesOfAddress: 5 / 4,
    randomWords: 10,
    line: { spilled: 0, addresses: 2, grants: 5 },
  },
};
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

/** Returns the number of home lines for a capacity in addresses. */
function homesFor(capacity: number, family: Family): number {
  return Math.ceil(capacity * GRANT_LAYOUTS[family].homesOfAddress);
}

/**
 * Returns the number of cache lines of the map `grants` of a family: the header, the home lines, and
 * `probes - 1` lines for addresses whose home line is full. In addition, the map has one line for a set of
 * grants for each address of the capacity.
 */
export function linesFor(capacity: number, family: Family = 'ipv4'): number {
  return 1 + homesFor(capacity, family) + GRANT_LAYOUTS[family].probes - 1 + capacity;
}

/**
 * Returns the capacity in addresses of a map with this number of cache lines: the inverse of `linesFor`.
 */
export function capacityOf(lines: number, family: Family = 'ipv4'): number {
  const { probes, homesOfAddress } = GRANT_LAYOUTS[family];
  const least = Math.floor((lines - probes - 1) / (1 + homesOfAddress));
  for (let capacity = least; capacity <= least + 2; capacity++)
    if (linesFor(capacity, family) === lines) return capacity;
  throw new RangeError(`compute the capacity of the map grants: no capacity needs a map of ${lines} cache lines`);
}

export function regionsFor(
  capacity: number,
  family: Family,
): { readonly homes: number; readonly sets: number; readonly end: number } {
  const homes = homesFor(capacity, family);
  return { homes, sets: homes + GRANT_LAYOUTS[family].probes, end: linesFor(capacity, family) };
}

/**
 * Converts a time in nanoseconds on the monotonic clock to expiry units of 2^27 ns. Rounds down, so that no
 * grant is valid after its expiry. An earlier time becomes the first unit after the boot: the low 32 bits of
 * a negative time would be a time in the future, and with the expiry 0 the grant of pattern 0 would be 0,
 * which means that there is no grant.
 */
export function expiryOf(monotonicNs: bigint | number): number {
  const units = typeof monotonicNs === 'bigint' ? Number(monotonicNs >> EXPIRY_SHIFT) : monotonicNs / EXPIRY_UNIT_NS;
  return Math.min(Math.max(Math.floor(units), EARLIEST), LATEST);
}

export function timeOf(expiry: number): bigint {
  return BigInt(expiry) << EXPIRY_SHIFT;
}

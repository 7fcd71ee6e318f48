import { DENY_ONLY_MEMBER } from '#contracts/kubernetes/membership.js';
import type { Family } from '#contracts/policy/policy-model.js';

/**
 * Constants of the BPF maps `members` and `member_sets`; they must equal those in `bpf/classify/members.h`
 * and in `address_lines.h` of each family. A test compares the struct sizes and field offsets with the BTF of
 * the BPF objects.
 */
export const MEMBER_LINE = { words: 16 } as const;

/** The properties of the map `members` of one family. */
export type MemberLayout = {
  /** Number of members (addresses with an owner) in one cache line. */
  readonly places: number;
  /** Maximum number of cache lines that a search for an address reads, from its home line on. */
  readonly probes: number;
  /**
   * Number of home lines for each address of the capacity. A home line is the cache line where the search for
   * an address begins.
   */
  readonly homesOfAddress: number;
  /** Number of random words that `writeHeader` takes. */
  readonly randomWords: number;
  /**
   * Offsets in `struct member_line`, in 32-bit words: of the counters, of the first address and its set, and
   * from one address or set to the next.
   */
  readonly line: {
    readonly spilled: number;
    readonly refused: number;
    readonly addresses: number;
    readonly sets: number;
    readonly addressStep: number;
    readonly setStep: number;
  };
  /** Whether the BPF programs read an address and its set by one load. */
  readonly hasOneLoad: boolean;
};
const COUNTERS = { spilled: 0, refused: 1 } as const;
export const MEMBER_LAYOUTS: Readonly<Record<Family, MemberLayout>> = {
  ipv4: {
    places: 7,
    probes: 8,
    homesOfAddress: 1 / 4,
    randomWords: 4,
    line: { ...COUNTERS, addresses: 2, sets: 3, addressStep: 2, setStep: 2 },
    hasOneLoad: true,
  },
  ipv6: {
    places: 2,
    probes: 16,
    homesOfAddress: 5 / 4,
    randomWords: 10,
    line: { ...COUNTERS, addresses: 2, sets: 10, addressStep: 4, setStep: 1 },
    hasOneLoad: false,
  },
};
/**
 * Offset of the field `incomplete` of `struct member_header`, in 32-bit words. The fields before it are as in
 * `struct grant_header`.
 */
export const INCOMPLETE = 5;
/** Offset of the count of changes, `reserved[0]` of `struct member_header`, in 32-bit words. */
export const CHANGES = 6;
/** Size of `struct member_set` and offsets of its fields, in 32-bit words; `digestBytes` in bytes. */
export const MEMBER_SET = { words: 8, indexes: 0, digest: 2, digestBytes: 24 } as const;

/**
 * A map index that no set of selectors has. An address with it gets no allow rule of a group with Kubernetes
 * selectors (it is deny-only).
 */
export const DENY_ONLY_SET = DENY_ONLY_MEMBER.number;

/** The number of addresses of each family for which the map `members` has room. */
const MEMBER_CAPACITY = 1 << 17;

export function memberHomes(family: Family): number {
  return MEMBER_CAPACITY * MEMBER_LAYOUTS[family].homesOfAddress;
}

/** Returns the number of cache lines of the map `members` of a family. */
export function memberLines(family: Family): number {
  return 1 + memberHomes(family) + MEMBER_LAYOUTS[family].probes - 1;
}

/** Number of entries of the map `member_sets`. Entry 0 belongs to no set of selectors. */
export const MEMBER_SETS = 1 << 14;
/** Size of an entry of the map `third_indexes`, in 32-bit words; the index is in the first word. */
export const THIRD_WORDS = 2;

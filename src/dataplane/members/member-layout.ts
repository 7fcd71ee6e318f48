import { DENY_ONLY_MEMBER } from '#contracts/kubernetes/membership.js';

/**
 * Constants of the BPF maps `members` and `member_sets`; they must equal those in `bpf/classify/members.h`. A
 * test compares the struct sizes and field offsets with the BTF of the BPF object.
 */
export const MEMBER_LINE = { words: 16, longs: 8 } as const;
/** Number of members (addresses with an owner) in one cache line. */
export const MEMBER_PLACES = 7;
/** Maximum number of cache lines that a search for an address reads, from its home line on. */
export const MEMBER_PROBES = 8;
/** Offsets of the fields of `struct member_line`: in 32-bit words, but `members` in 64-bit words. */
export const MEMBER_FIELDS = { spilled: 0, refused: 1, members: 1 } as const;
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

/** The number of addresses for which the map `members` has room in any case. */
const MEMBER_CAPACITY = 1 << 17;
/**
 * Number of home lines: one for each four addresses of the capacity. A home line is the cache line where the
 * search for an address begins; it has room for seven addresses.
 */
export const MEMBER_HOMES = MEMBER_CAPACITY / 4;
export const MEMBER_LINES = 1 + MEMBER_HOMES + MEMBER_PROBES - 1;
/** Number of entries of the map `member_sets`. Entry 0 belongs to no set of selectors. */
export const MEMBER_SETS = 1 << 14;
/** Size of an entry of the map `third_indexes`, in 32-bit words; the index is in the first word. */
export const THIRD_WORDS = 2;

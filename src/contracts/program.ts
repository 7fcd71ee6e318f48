import type { IntervalPool, Intervals } from './interval-map.js';
import type { LookupTables } from './lookup-tables.js';
import type { HostnamePattern } from './policy-model.js';
import type { RuleNames } from './rule-names.js';

/**
 * A program is a compiled policy: a deterministic function of the policy, independent of any kernel. Every search is
 * in an interval map, and always finds an interval.
 */
export type Program = {
  /** Source address → list. */
  readonly sources: Intervals;
  /**
   * A list is what one population of sources is judged by: at most `MAX_SEGMENTS` segments, searched in order (every
   * rank of a segment is below every rank of the next), then a default word.
   */
  readonly lists: {
    readonly offsets: Uint32Array;
    readonly segments: Uint32Array;
    readonly defaults: Uint32Array;
  };
  /**
   * Per segment: its map in `destinations`, its leaf of rules with any destination, and the leaf of all its hostname
   * rules together, which says what a granted name could bring at best; `NONE` where absent.
   */
  readonly segments: {
    readonly destinations: Uint32Array;
    readonly wildcards: Uint32Array;
    readonly named: Uint32Array;
  };
  /** Destination address → leaf, or `NONE`. */
  readonly destinations: IntervalPool;
  /** `leafKey` → word, `NO_MATCH`, or `SLICE | map of slices`. Equal leaves are one. */
  readonly leaves: IntervalPool;
  /** Source port → word or `NO_MATCH`. */
  readonly slices: IntervalPool;
  /** The patterns of all hostname rules, each once. */
  readonly names: readonly HostnamePattern[];
  /**
   * What counts besides the leaves of a segment where a name is granted: a leaf, or `MAP | map of destinations` where
   * rules of the name have destinations too (D10). Segments ascend, and the names of a segment.
   */
  readonly nameLeaves: { readonly segments: Uint32Array; readonly names: Uint32Array; readonly leaves: Uint32Array };
  /** What lookups are decided by. */
  readonly lookups: LookupTables;
  /** Number of ranks in the policy. */
  readonly ranks: number;
  readonly ruleNames: RuleNames;
};

export const MAX_SEGMENTS = 7;
export const NONE = 0xffff_ffff;
export const SLICE = 0x8000_0000;
export const MAP = 0x8000_0000;

/** The key of a leaf: ICMP type and code stand where other protocols have their destination port. */
export function leafKey(protocol: number, low16: number): number {
  return protocol * 0x1_0000 + low16;
}

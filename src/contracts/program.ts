import type { LookupTables } from './dns-lookup-tables.js';
import type { IntervalPool, Intervals } from './interval-map.js';
import type { HostnamePattern } from './policy-model.js';
import type { RuleNames } from './rule-names.js';

/**
 * A program is a compiled policy: a deterministic function of the policy, independent of any kernel. Every
 * search is in an interval map and always finds an interval.
 */
export type Program = {
  /** Source address → list. */
  readonly sources: Intervals;
  /**
   * A list decides the packets of one population of sources. It has at most `MAX_SEGMENTS` segments (rule
   * blocks), searched in order, and then a default word. Every rank of a segment is below every rank of the
   * next.
   */
  readonly lists: {
    readonly offsets: Uint32Array;
    readonly segments: Uint32Array;
    readonly defaults: Uint32Array;
  };
  /**
   * For each segment: its map in `destinations`; the leaf (port map) of rules with any destination; and the
   * leaf of all its hostname rules together, which is a lower bound for the word that a granted name can
   * give. `NONE` if absent.
   */
  readonly segments: {
    readonly destinations: Uint32Array;
    readonly wildcards: Uint32Array;
    readonly named: Uint32Array;
  };
  /** Destination address → leaf, or `NONE`. */
  readonly destinations: IntervalPool;
  /** `leafKey` → word, `NO_MATCH`, or `SLICE | map of slices`. Equal leaves are stored once. */
  readonly leaves: IntervalPool;
  /** Source port → word or `NO_MATCH`. */
  readonly slices: IntervalPool;
  /** The patterns of all hostname rules, each once. */
  readonly names: readonly HostnamePattern[];
  /**
   * The leaf that a granted name adds to the leaves of a segment: a leaf, or `MAP | map of destinations` if
   * rules of the name have destinations too (D10). Sorted by segment, then by name.
   */
  readonly nameLeaves: { readonly segments: Uint32Array; readonly names: Uint32Array; readonly leaves: Uint32Array };
  /** The tables that decide lookups. */
  readonly lookups: LookupTables;
  /** Number of ranks in the policy. */
  readonly ranks: number;
  readonly ruleNames: RuleNames;
};

export const MAX_SEGMENTS = 7;
export const NONE = 0xffff_ffff;
export const SLICE = 0x8000_0000;
export const MAP = 0x8000_0000;

/** The key of a leaf. For ICMP, type and code take the place of the destination port. */
export function leafKey(protocol: number, low16: number): number {
  return protocol * 0x1_0000 + low16;
}

import type { LookupTables } from './dns-lookup-tables.js';
import type { IntervalPool, Intervals } from './interval-map.js';
import type { HostnamePattern } from './policy-model.js';
import type { RuleNames } from './rule-names.js';

/**
 * A program is a compiled policy: a deterministic function of the policy, independent of any kernel. Its
 * lookups are searches in interval maps, and every search finds an interval.
 */
export type Program = {
  /** Maps a source address to the number of its list in `lists`. */
  readonly sources: Intervals;
  /**
   * A list decides the packets of sources to which the same groups apply. It has up to `MAX_RULE_BLOCKS`
   * rule blocks, searched in order, and then a default verdict word. Each rule block has only lower
   * ranks than the rule blocks after it.
   */
  readonly lists: {
    readonly offsets: Uint32Array;
    readonly ruleBlocks: Uint32Array;
    readonly defaults: Uint32Array;
  };
  /**
   * Three numbers for each rule block, `NONE` if absent. `destinations`: its interval map in
   * `Program.destinations`. `wildcards`: the port map of rules with any destination. `named`: a port map with
   * the lowest verdict words of its hostname rules; a search can skip all granted names if these words are
   * too high.
   */
  readonly ruleBlocks: {
    readonly destinations: Uint32Array;
    readonly wildcards: Uint32Array;
    readonly named: Uint32Array;
  };
  /** Maps a destination address to the number of a port map in `portMaps`, or to `NONE`. */
  readonly destinations: IntervalPool;
  /**
   * The port maps. They map a `portMapKey` to a verdict word, to `NO_MATCH`, or to `SOURCE_PORT_MAP | s`,
   * where `s` is a map in `sourcePortMaps`. Equal port maps are stored once.
   */
  readonly portMaps: IntervalPool;
  /** Maps a source port to a verdict word or to `NO_MATCH`. */
  readonly sourcePortMaps: IntervalPool;
  /** The hostname patterns of all rules; each pattern appears once. */
  readonly names: readonly HostnamePattern[];
  /**
   * For a rule block and a granted name, the additional port map to search. If rules with this name
   * have destinations, `portMaps` contains `MAP | d`, where `d` is a map in `Program.destinations` (D10). The
   * rows are sorted by rule block, then by name.
   */
  readonly namePortMaps: {
    readonly ruleBlocks: Uint32Array;
    readonly names: Uint32Array;
    readonly portMaps: Uint32Array;
  };
  /** The tables that decide DNS lookups. */
  readonly lookups: LookupTables;
  /** The number of ranks in the policy: the count of its rules and defaults. */
  readonly ranks: number;
  readonly ruleNames: RuleNames;
};

export const MAX_RULE_BLOCKS = 7;
export const NONE = 0xffff_ffff;
export const SOURCE_PORT_MAP = 0x8000_0000;
export const MAP = 0x8000_0000;

/**
 * Returns the key of a packet in a port map. `low16` is the destination port; for ICMP, it is the type and
 * code.
 */
export function portMapKey(protocol: number, low16: number): number {
  return protocol * 0x1_0000 + low16;
}

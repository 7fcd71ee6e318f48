import type { LookupTables } from '#contracts/dns/dns-lookup-tables.js';
import type { MemberTables } from '#contracts/kubernetes/member-tables.js';
import type { IntervalPool, Intervals } from './interval-map.js';
import type { HostnamePattern } from './policy-model.js';
import type { RuleNames } from './rule-names.js';

/**
 * A program is a compiled policy. It depends only on the policy, not on the kernel. A lookup in a program is
 * a search in interval maps, and every search finds an interval. The tables of `Program` itself are those of
 * IPv4.
 */
export type Program = FamilyProgram & {
  /** The tables of IPv6; null if the program is compiled for IPv4 only. */
  readonly ipv6: Ipv6Program | null;
  /** The hostname patterns of all rules; each pattern appears once. */
  readonly names: readonly HostnamePattern[];
  /** The number of ranks (positions in the order of evaluation): one for each rule and each default. */
  readonly ranks: number;
  readonly ruleNames: RuleNames;
};

/**
 * The tables of IPv6. They have the numbers of address classes in place of addresses. So a lookup first finds
 * the classes of the source and of the destination, and then needs no other search than a lookup of IPv4.
 */
export type Ipv6Program = FamilyProgram & { readonly classes: AddressClasses };

/**
 * The IPv6 addresses, divided into intervals at the bounds of the prefixes of a policy. An address class is
 * such an interval, and its number is its place among them. A rule or group matches all addresses of a class,
 * or none.
 */
export type AddressClasses = {
  /** The first address of each class, ascending, as four words with the highest word first. */
  readonly starts: Uint32Array;
};

/** The tables for the packets of one family. */
export type FamilyProgram = {
  /** Maps a source to the index of its rule list in `lists`. */
  readonly sources: Intervals;
  /**
   * A list decides the packets of all sources to which the same groups apply. It has up to `MAX_RULE_BLOCKS`
   * rule blocks, which are searched in order, and then a default verdict word. All rules in a rule block come
   * earlier in the order of evaluation than the rules in the blocks after it.
   */
  readonly lists: {
    readonly offsets: Uint32Array;
    readonly ruleBlocks: Uint32Array;
    readonly defaults: Uint32Array;
  };
  /**
   * Three map numbers for each rule block; `NONE` if the block has no such map. `destinations`: its map in
   * `Program.destinations`. `wildcards`: the port map of its rules for any destination. `named`: a port map
   * with the lowest verdict words of its hostname rules. If a search has already found a lower word, it
   * skips these rules.
   */
  readonly ruleBlocks: {
    readonly destinations: Uint32Array;
    readonly wildcards: Uint32Array;
    readonly named: Uint32Array;
  };
  /** Maps a destination to the number of a port map in `portMaps`, or to `NONE`. */
  readonly destinations: IntervalPool;
  /**
   * The port maps. A port map maps a `portMapKey` to a verdict word, to `NO_MATCH`, or to `SOURCE_PORT_MAP |
   * s`, where `s` is a map in `sourcePortMaps`. Equal port maps are stored once.
   */
  readonly portMaps: IntervalPool;
  /** Maps a source port to a verdict word (rule and verdict as a number), or to `NO_MATCH`. */
  readonly sourcePortMaps: IntervalPool;
  /**
   * Each row has a rule block, a hostname pattern and a port map. The port map is searched in addition if
   * the destination has a grant for the pattern. If rules with this pattern have destinations, the port map
   * is `MAP | d`, where `d` is a map in `Program.destinations` (D10). The rows are sorted by rule block,
   * then by pattern.
   */
  readonly namePortMaps: {
    readonly ruleBlocks: Uint32Array;
    readonly names: Uint32Array;
    readonly portMaps: Uint32Array;
  };
  /** The tables for sources that Kubernetes objects own (D38a); null if no selector is resolved. */
  readonly members: MemberTables | null;
  readonly lookups: LookupTables;
};

export const MAX_RULE_BLOCKS = 7;
export const NONE = 0xffff_ffff;
export const SOURCE_PORT_MAP = 0x8000_0000;
export const DESTINATION_MAP = 0x8000_0000;

/**
 * Returns the key of a packet in a port map. `low16` is the destination port. For ICMP, it is type << 8 |
 * code.
 */
export function portMapKey(protocol: number, low16: number): number {
  return protocol * 0x1_0000 + low16;
}

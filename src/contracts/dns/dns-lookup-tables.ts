import type { Texts } from '#arrays/texts.js';
import type { MemberTrees } from '#contracts/kubernetes/member-tables.js';
import type { Intervals } from '#contracts/policy/interval-map.js';

/**
 * The tables with which `LookupIndex` decides DNS lookups (D11). They contain only arrays of numbers, so that
 * threads can share them. The number of a pattern is its index in `Program.names`. `words` and `defaults`
 * contain verdict words (rank and verdict in 32 bits). In the tables of IPv6, a source is the number of its
 * address class.
 */
export type LookupTables = {
  /** Maps a source to its class. The same groups decide the lookups of all sources in a class. */
  readonly sources: Intervals;
  /**
   * For sources with an owner (a Kubernetes object): the populations (sources with the same groups) as in
   * `MemberTables`, and the class of each population.
   */
  readonly members: (MemberTrees & { readonly classes: Uint32Array }) | null;
  readonly classes: {
    /**
     * Class `c` uses the elements `offsets[c]` … `offsets[c + 1] - 1` of `groups`: the groups that decide
     * its lookups by hostname, in ascending order.
     */
    readonly offsets: Uint32Array;
    readonly groups: Uint32Array;
    /**
     * For each class of sources, the verdict word (rule and verdict as a number) that applies if no hostname
     * rule of its groups decides the lookup.
     */
    readonly defaults: Uint32Array;
  };
  /**
   * The groups with rules for pattern `p` are the elements `offsets[p]` … `offsets[p + 1] - 1` of `groups`,
   * in ascending order. `words` contains the verdict word of each of these groups.
   */
  readonly patterns: {
    readonly offsets: Uint32Array;
    readonly groups: Uint32Array;
    readonly words: Uint32Array;
  };
  readonly names: NameTables;
};

/**
 * The tables with which `NameIndex` finds the patterns that match a name. The number of a pattern is its
 * index in `Program.names`.
 */
export type NameTables = {
  /**
   * For each pattern, its name in DNS wire format, without the `*.` of a suffix pattern. The name is empty
   * for the pattern `*` and for a regular expression.
   */
  readonly wires: { readonly bytes: Uint8Array; readonly offsets: Uint32Array };
  /**
   * A hash table of exact names. Each hash slot has two 32-bit numbers: the hash of the name, and the number
   * of its pattern or `NONE`.
   */
  readonly exact: Uint32Array;
  readonly suffixes: Uint32Array;
  /** The number of the pattern `*`; `NONE` if the policy does not contain this pattern. */
  readonly any: number;
  readonly regexes: { readonly numbers: Uint32Array; readonly texts: Texts };
};

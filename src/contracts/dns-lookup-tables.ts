import type { Intervals } from './interval-map.js';
import type { Texts } from './texts.js';

/**
 * The tables that decide lookups (D11), read by `LookupIndex`. They contain only arrays of numbers, so that
 * threads can share them. Patterns are numbered as in `Program.names`; words are verdict words.
 */
export type LookupTables = {
  /** Source address → class. All sources of a class have the same groups that decide lookups. */
  readonly sources: Intervals;
  readonly classes: {
    /**
     * The groups of class `c` that decide lookups by hostname: `offsets[c]` … `offsets[c + 1]` of `groups`,
     * ascending.
     */
    readonly offsets: Uint32Array;
    readonly groups: Uint32Array;
    /** For each class, the word that decides if no hostname rule decides before it. */
    readonly defaults: Uint32Array;
  };
  /**
   * The groups that decide lookups by pattern `p`: `offsets[p]` … `offsets[p + 1]`, ascending, with a word
   * for each.
   */
  readonly patterns: {
    readonly offsets: Uint32Array;
    readonly groups: Uint32Array;
    readonly words: Uint32Array;
  };
  readonly names: NameTables;
};

/**
 * The tables that find the patterns that match a name, read by `NameIndex`. Patterns are numbered as in
 * `Program.names`.
 */
export type NameTables = {
  /**
   * For each pattern its name in wire form, without the `*.` of a suffix; empty for a pattern without a name.
   */
  readonly wires: { readonly bytes: Uint8Array; readonly offsets: Uint32Array };
  /** Two words for each slot: the hash of a name, and the number of its pattern or `NONE`. */
  readonly exact: Uint32Array;
  readonly suffixes: Uint32Array;
  /** The pattern `*`, or `NONE`. */
  readonly any: number;
  readonly regexes: { readonly numbers: Uint32Array; readonly texts: Texts };
};

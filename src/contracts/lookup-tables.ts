import type { Intervals } from './interval-map.js';
import type { Texts } from './texts.js';

/**
 * What lookups are decided by (D11), read by `LookupIndex`. Only arrays of numbers, so that threads share them. Patterns
 * are numbered as in `Program.names`, words are those of `word()`.
 */
export type LookupTables = {
  /** Source address → class. The sources of a class have the same groups that count for lookups. */
  readonly sources: Intervals;
  readonly classes: {
    /** The groups of class `c` that decide lookups by hostname: `offsets[c]` … `offsets[c + 1]` of `groups`, ascending. */
    readonly offsets: Uint32Array;
    readonly groups: Uint32Array;
    /** Per class the word that decides where no hostname does before it. */
    readonly defaults: Uint32Array;
  };
  /** The groups that decide lookups by pattern `p`: `offsets[p]` … `offsets[p + 1]`, ascending, a word each. */
  readonly patterns: {
    readonly offsets: Uint32Array;
    readonly groups: Uint32Array;
    readonly words: Uint32Array;
  };
  readonly names: NameTables;
};

/** What patterns match a name, read by `NameIndex`. Patterns are numbered as in `Program.names`. */
export type NameTables = {
  /** Per pattern its name in wire form, without the `*.` of a suffix; empty where it has no name. */
  readonly wires: { readonly bytes: Uint8Array; readonly offsets: Uint32Array };
  /** Two words a slot: the hash of a name, and the number of its pattern or `NONE`. */
  readonly exact: Uint32Array;
  readonly suffixes: Uint32Array;
  /** The pattern `*`, or `NONE`. */
  readonly any: number;
  readonly regexes: { readonly numbers: Uint32Array; readonly texts: Texts };
};

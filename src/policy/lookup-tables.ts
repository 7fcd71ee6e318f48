import type { NameTables } from './name-tables.js';
import type { Intervals } from './program.js';

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

import type { LookupTables } from './dns-lookup-tables.js';
import type { Program } from './program.js';

/** The tables that decide DNS lookups, taken from the program with this generation. */
export type Lookups = {
  readonly generation: number;
  /** The text of each pattern. The index is the pattern number in `LookupTables`. */
  readonly patterns: readonly string[];
  readonly tables: LookupTables;
};

export function lookupsOf({ names, lookups: tables }: Program, generation: number): Lookups {
  return { generation, patterns: names.map(({ text }) => text), tables };
}

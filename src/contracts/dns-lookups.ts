import type { LookupTables } from './dns-lookup-tables.js';
import type { Program } from './program.js';

/** The tables that decide lookups, from the program of a generation. */
export type Lookups = {
  readonly generation: number;
  /** Texts of the patterns, as numbered by `LookupTables`. */
  readonly patterns: readonly string[];
  readonly tables: LookupTables;
};

export function lookupsOf({ names, lookups: tables }: Program, generation: number): Lookups {
  return { generation, patterns: names.map(({ text }) => text), tables };
}

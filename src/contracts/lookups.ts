import type { LookupTables } from './lookup-tables.js';
import type { Program } from './program.js';

/** What lookups are judged by: of the program of a generation. */
export type Lookups = {
  readonly generation: number;
  /** Texts of the patterns, as `LookupTables` numbers them. */
  readonly patterns: readonly string[];
  readonly tables: LookupTables;
};

export function lookupsOf({ names, lookups: tables }: Program, generation: number): Lookups {
  return { generation, patterns: names.map(({ text }) => text), tables };
}

import type { LookupTables } from './dns-lookup-tables.js';
import type { Program } from './program.js';

/** The tables that decide DNS lookups by the policy with this generation. */
export type Lookups = {
  readonly generation: number;
  /** The text of each pattern, by the number that the pattern has in `LookupTables`. */
  readonly patterns: readonly string[];
  readonly tables: LookupTables;
};

export function lookupsOf({ names, lookups: tables }: Program, generation: number): Lookups {
  return { generation, patterns: names.map(({ text }) => text), tables };
}

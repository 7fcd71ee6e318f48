import type { SelectorTables } from '#contracts/kubernetes/member-tables.js';
import type { Program } from '#contracts/policy/program.js';
import type { LookupTables } from './dns-lookup-tables.js';

/** The tables that decide DNS lookups by the policy with this generation. */
export type Lookups = {
  readonly generation: number;
  /** The text of each pattern, by the number that the pattern has in `LookupTables`. */
  readonly patterns: readonly string[];
  readonly tables: LookupTables;
  /**
   * The tables for sources with an owner (a Kubernetes object); null if the policy has no resolved selector.
   */
  readonly selectors: SelectorTables | null;
};

export function lookupsOf({ names, lookups: tables, members }: Program, generation: number): Lookups {
  const selectors = members === null ? null : { selectors: members.selectors, sets: members.sets };
  return { generation, patterns: names.map(({ text }) => text), tables, selectors };
}

import type { SelectorTables } from '#contracts/kubernetes/member-tables.js';
import type { AddressClasses, Program } from '#contracts/policy/program.js';
import type { LookupTables } from './dns-lookup-tables.js';

/** The tables that decide DNS lookups by the policy with this generation. */
export type Lookups = {
  readonly generation: number;
  /** The text of each pattern, by the number that the pattern has in `LookupTables`. */
  readonly patterns: readonly string[];
  /** The tables for IPv4 sources. */
  readonly tables: LookupTables;
  /** The tables for IPv6 sources, which have the numbers of address classes in place of addresses. */
  readonly ipv6: { readonly tables: LookupTables; readonly classes: AddressClasses } | null;
  /**
   * The tables for sources with an owner (a Kubernetes object); null if the policy has no resolved selector.
   */
  readonly selectors: SelectorTables | null;
};

export function lookupsOf({ names, lookups: tables, members, ipv6: program }: Program, generation: number): Lookups {
  const selectors = members === null ? null : { selectors: members.selectors, sets: members.sets };
  const ipv6 = program === null ? null : { tables: program.lookups, classes: program.classes };
  return { generation, patterns: names.map(({ text }) => text), tables, ipv6, selectors };
}

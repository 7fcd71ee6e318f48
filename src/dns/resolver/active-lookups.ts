import type { Lookups } from '#contracts/dns/dns-lookups.js';
import { DENY_ONLY_INDEX } from '#contracts/kubernetes/member-tables.js';
import { LookupIndex } from '#policy/evaluate/lookup/lookup-index.js';
import { GroupSetIndex } from '#policy/model/sources/member-index.js';
import type { MemberRecord } from '#policy/model/sources/member-record.js';

/**
 * Decides DNS lookups by the policy in force, and by the Kubernetes objects that own the source addresses
 * (D11, D38a).
 */
export class ActiveLookups {
  readonly generation: number;
  readonly patterns: Lookups['patterns'];
  readonly #index: LookupIndex;
  readonly #sets: GroupSetIndex | null;

  constructor(
    { generation, patterns, tables, selectors }: Lookups,
    private readonly members: MemberRecord,
  ) {
    this.generation = generation;
    this.patterns = patterns;
    this.#index = new LookupIndex(tables);
    this.#sets = selectors === null ? null : new GroupSetIndex(selectors);
  }

  /** Returns the verdict word that decides whether `source` may look up the name `key`. */
  decide(source: number, key: string): number {
    return this.#index.decide(source, key, this.#sets === null ? undefined : this.#setOf(source, this.#sets));
  }

  /** Returns the texts of the hostname patterns that match the name `key`. */
  matching(key: string): readonly string[] {
    return this.#index.matching(key).flatMap((at) => this.patterns[at] ?? []);
  }

  #setOf(source: number, sets: GroupSetIndex): number | undefined {
    if (!this.members.isKnown) return DENY_ONLY_INDEX;
    const set = this.members.setOf(source);
    return set === undefined ? undefined : sets.indexOf(set);
  }
}

import type { Lookups } from '#contracts/dns/dns-lookups.js';
import { DENY_ONLY_INDEX } from '#contracts/kubernetes/member-tables.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { outcomeBits } from '#contracts/policy/verdict-word.js';
import { LookupIndex } from '#policy/evaluate/lookup/lookup-index.js';
import { classOf } from '#policy/model/sources/address-classes.js';
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
  readonly #ipv6: (Pick<NonNullable<Lookups['ipv6']>, 'classes'> & { readonly index: LookupIndex }) | null;
  readonly #sets: GroupSetIndex | null;

  constructor(
    { generation, patterns, tables, ipv6, selectors }: Lookups,
    private readonly members: MemberRecord,
  ) {
    this.generation = generation;
    this.patterns = patterns;
    this.#index = new LookupIndex(tables);
    this.#ipv6 = ipv6 && { classes: ipv6.classes, index: new LookupIndex(ipv6.tables) };
    this.#sets = selectors === null ? null : new GroupSetIndex(selectors);
  }

  /**
   * Returns the verdict word that decides whether `source` may look up the name `key`. A policy without
   * tables of IPv6 denies lookups of IPv6 sources, as the datapath denies their packets.
   */
  decide(source: Address, key: string): number {
    const set = this.#sets === null ? undefined : this.#setOf(source, this.#sets);
    if (typeof source === 'number') return this.#index.decide(source, key, set);
    if (this.#ipv6 === null) return outcomeBits('deny', false);
    return this.#ipv6.index.decide(classOf(this.#ipv6.classes, source), key, set);
  }

  /** Returns the texts of the hostname patterns that match the name `key`. */
  matching(key: string): readonly string[] {
    return this.#index.matching(key).flatMap((at) => this.patterns[at] ?? []);
  }

  #setOf(source: Address, sets: GroupSetIndex): number | undefined {
    if (!this.members.isKnown) return DENY_ONLY_INDEX;
    const set = this.members.setOf(source);
    return set === undefined ? undefined : sets.indexOf(set);
  }
}

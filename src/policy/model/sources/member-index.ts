import { u32At } from '#arrays/read.js';
import {
  DENY_ONLY_INDEX,
  EMPTY_SET,
  type MemberTables,
  type MemberTrees,
  type SelectorTables,
} from '#contracts/kubernetes/member-tables.js';
import { DENY_ONLY_MEMBER, type SelectorSet } from '#contracts/kubernetes/membership.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { Ipv6Program } from '#contracts/policy/program.js';
import { valueAt } from '#policy/model/intervals.js';
import { classOf } from './address-classes.js';
import { groupsOfSet, type SelectorGroups } from './group-sets.js';

/**
 * Returns the population (sources with the same groups) of a source, which is given as the key of its address
 * in the tables of its family. `index`: that of the set of groups that
 * select the owner of the source.
 */
export function populationOf({ bases, trees }: MemberTrees, source: number, index: number): number {
  const base = valueAt(bases, source);
  return valueAt(trees, index, u32At(trees.offsets, base), u32At(trees.offsets, base + 1));
}

/** For a set of selectors, finds the groups that have one of them, and the index of this set of groups. */
export class GroupSetIndex {
  readonly #selectors: SelectorGroups;
  readonly #indexes: ReadonlyMap<string, number>;
  readonly #known = new WeakMap<SelectorSet, number>();

  constructor({ selectors, sets }: SelectorTables) {
    this.#selectors = new Map(selectors.map(({ key, groups }) => [key, groups]));
    this.#indexes = new Map(sets.map((groups, at) => [groups.join(' '), EMPTY_SET + at]));
  }

  /** Returns the index of the set of groups that have a selector of `set`. */
  indexOf(set: SelectorSet): number {
    const known = this.#known.get(set);
    if (known !== undefined) return known;
    const isDenyOnly = set.number === DENY_ONLY_MEMBER.number;
    const groups = isDenyOnly ? undefined : groupsOfSet(set, this.#selectors);
    const index = groups === undefined ? DENY_ONLY_INDEX : (this.#indexes.get(groups.join(' ')) ?? DENY_ONLY_INDEX);
    this.#known.set(set, index);
    return index;
  }
}

/**
 * Like `GroupSetIndex`. Also tells for which sources with which sets of groups the compiled policy has rules.
 * A set of groups has the same index in the tables of both IP families.
 */
export class MemberIndex extends GroupSetIndex {
  readonly #ipv4: MemberTables;
  readonly #ipv6: Ipv6Program | null;

  constructor(ipv4: MemberTables, ipv6: Ipv6Program | null = null) {
    super(ipv4);
    this.#ipv4 = ipv4;
    this.#ipv6 = ipv6;
  }

  /**
   * Whether the compiled policy has rules for this source with the set of groups that has this index. True
   * for an IPv6 source if the policy was compiled without IPv6: another compilation would not add rules.
   */
  has(source: Address, index: number): boolean {
    if (typeof source === 'number') return hasPair(this.#ipv4, source, index);
    const ipv6 = this.#ipv6;
    return ipv6 === null || ipv6.members === null || hasPair(ipv6.members, classOf(ipv6.classes, source), index);
  }
}

/** `point`: the key of the source in the tables of its family. */
function hasPair({ bases, pairs }: Pick<MemberTables, 'bases' | 'pairs'>, point: number, index: number): boolean {
  if (index <= EMPTY_SET) return index === EMPTY_SET;
  const base = valueAt(bases, point);
  const from = u32At(pairs.offsets, base);
  return pairs.indexes.subarray(from, u32At(pairs.offsets, base + 1)).includes(index);
}

import { u32At } from '#arrays/read.js';
import {
  DENY_ONLY_INDEX,
  EMPTY_SET,
  type MemberTables,
  type MemberTrees,
  type SelectorTables,
} from '#contracts/kubernetes/member-tables.js';
import { DENY_ONLY_MEMBER, type SelectorSet } from '#contracts/kubernetes/membership.js';
import { valueAt } from '#policy/model/intervals.js';
import { groupsOfSet, type SelectorGroups } from './group-sets.js';

/**
 * Returns the population (sources with the same groups) of a source. `index`: that of the set of groups that
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
 */
export class MemberIndex extends GroupSetIndex {
  readonly #tables: Pick<MemberTables, 'bases' | 'pairs'>;

  constructor(tables: MemberTables) {
    super(tables);
    this.#tables = tables;
  }

  /** Whether the compiled policy has rules for this source with the set of groups that has this index. */
  has(source: number, index: number): boolean {
    const { bases, pairs } = this.#tables;
    if (index <= EMPTY_SET) return index === EMPTY_SET;
    const base = valueAt(bases, source);
    const from = u32At(pairs.offsets, base);
    return pairs.indexes.subarray(from, u32At(pairs.offsets, base + 1)).includes(index);
  }
}

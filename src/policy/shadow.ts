import { containsAll, isContradictory } from './coverage.js';
import type { Group, Policy, Prefix, Rule } from './model.js';
import { PrefixIndex } from './prefix-index.js';
import { RuleIndex } from './rule-index.js';

export type Shadow = { readonly rule: Rule; readonly by: Rule };

/** How many times a rule is looked for in another group before the search is given up. */
const CROSS_GROUP_SEARCHES = 300_000;
const MAX_OUTER_GROUPS = 8;

/**
 * Rules that can never match because one earlier rule, of the group or of a group that holds all its sources, decides
 * all their packets. Rules that only several others hide together are not found.
 */
export function shadowedRules({ groups }: Policy, unreachable: ReadonlySet<number>): Shadow[] {
  const found: Shadow[] = [];
  const outer = new OuterGroups(groups);
  let searches = 0;
  for (const [index, group] of groups.entries()) {
    if (unreachable.has(index)) continue;
    const holders = group.dynamic || searches > CROSS_GROUP_SEARCHES ? [] : outer.holding(group);
    const own = group.rules.length > 1 ? new RuleIndex(group.rules.length) : undefined;
    for (const rule of group.rules) {
      let by = own?.findCover(rule);
      for (let at = 0; by === undefined && at < holders.length; at++, searches++) by = holders[at]?.findCover(rule);
      if (by !== undefined && !isContradictory(rule)) found.push({ rule, by });
      else own?.add(rule);
    }
    outer.add(index);
  }
  return found;
}

/** The groups walked so far, filed by their sources. */
class OuterGroups {
  readonly #groups: readonly Group[];
  readonly #sources: PrefixIndex;
  readonly #rules = new Map<number, RuleIndex>();

  constructor(groups: readonly Group[]) {
    this.#groups = groups;
    this.#sources = new PrefixIndex(groups.length);
  }

  add(index: number): void {
    const { sources, rules } = this.#groups[index] as Group;
    if (rules.length === 0) return;
    for (const source of sources) this.#sources.add(source, 0, index);
  }

  /** The rules of some of the groups that hold all sources of the given one. */
  holding({ sources }: Group): RuleIndex[] {
    const indexes: RuleIndex[] = [];
    const first: Prefix | undefined = sources[0];
    if (first === undefined) return indexes;
    const seen = new Set<number>();
    this.#sources.find(first, 0, (index) => {
      if (seen.has(index) || !containsAll(this.#groups[index]?.sources ?? [], sources)) return false;
      seen.add(index);
      indexes.push(this.#indexOf(index));
      return indexes.length === MAX_OUTER_GROUPS;
    });
    return indexes;
  }

  #indexOf(group: number): RuleIndex {
    const known = this.#rules.get(group);
    if (known !== undefined) return known;
    const { rules } = this.#groups[group] as Group;
    const index = new RuleIndex(rules.length);
    for (const rule of rules) index.add(rule);
    this.#rules.set(group, index);
    return index;
  }
}

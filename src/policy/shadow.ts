import { containsAll, isContradictory } from './coverage.js';
import type { Group, Policy, Prefix, Rule } from './model.js';
import { PrefixIndex } from './prefix-index.js';
import { RuleIndex } from './rule-index.js';

/** Where a rule stands that can never match, and the rule that decides all its packets before. */
export type Shadow = { readonly pointer: string; readonly by: string };

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
    const hidden: Hidden[] = [{ holder: group, pairs: shadowsWithin(group.rules) }];
    if (!group.dynamic && searches <= CROSS_GROUP_SEARCHES) {
      for (const holder of outer.holding(group)) {
        hidden.push({ holder, pairs: shadowsBehind(group.rules, holder.rules) });
        searches += group.rules.length;
      }
    }
    if (hidden.some(({ pairs }) => pairs.length > 0)) for (const shadow of shadowsOf(group, hidden)) found.push(shadow);
    outer.add(index);
  }
  return found;
}

type Hidden = { readonly holder: Group; readonly pairs: readonly Pair[] };

/** In the order of the rules, each with the first that hides it. */
function shadowsOf({ rules, pointer }: Group, hidden: readonly Hidden[]): Shadow[] {
  const by = new Map<Rule, string>();
  for (const { holder, pairs } of hidden) {
    for (const pair of pairs) if (!by.has(pair.rule)) by.set(pair.rule, holder.pointer + pair.by.pointer);
  }
  return rules.flatMap((rule) => {
    const hider = by.get(rule);
    return hider === undefined ? [] : [{ pointer: pointer + rule.pointer, by: hider }];
  });
}

type Rules = readonly Rule[];
type Pair = { readonly rule: Rule; readonly by: Rule };

const within = new WeakMap<Rules, readonly Pair[]>();
const behind = new WeakMap<Rules, WeakMap<Rules, readonly Pair[]>>();
const indexes = new WeakMap<Rules, RuleIndex>();
const NONE: readonly Pair[] = [];

function shadowsWithin(rules: Rules): readonly Pair[] {
  if (rules.length < 2) return NONE;
  return remembered(within, rules, () => {
    const index = new RuleIndex(rules.length);
    return pairsOf(rules, (rule) => {
      const by = index.findCover(rule);
      if (by === undefined || isContradictory(rule)) index.add(rule);
      return by;
    });
  });
}

function shadowsBehind(rules: Rules, holder: Rules): readonly Pair[] {
  const known = remembered(behind, rules, () => new WeakMap<Rules, readonly Pair[]>());
  return remembered(known, holder, () => {
    const index = remembered(indexes, holder, () => {
      const filed = new RuleIndex(holder.length);
      for (const rule of holder) filed.add(rule);
      return filed;
    });
    return pairsOf(rules, (rule) => index.findCover(rule));
  });
}

function pairsOf(rules: Rules, coverOf: (rule: Rule) => Rule | undefined): readonly Pair[] {
  const pairs: Pair[] = [];
  for (const rule of rules) {
    const by = coverOf(rule);
    if (by !== undefined && !isContradictory(rule)) pairs.push({ rule, by });
  }
  return pairs.length === 0 ? NONE : pairs;
}

function remembered<T>(known: WeakMap<Rules, T>, rules: Rules, find: () => T): T {
  const found = known.get(rules);
  if (found !== undefined) return found;
  const made = find();
  known.set(rules, made);
  return made;
}

/** The groups walked so far, filed by their sources. */
class OuterGroups {
  readonly #groups: readonly Group[];
  readonly #sources: PrefixIndex;

  constructor(groups: readonly Group[]) {
    this.#groups = groups;
    this.#sources = new PrefixIndex(groups.length);
  }

  add(index: number): void {
    const { sources, rules } = this.#groups[index] as Group;
    if (rules.length === 0) return;
    for (const source of sources) this.#sources.add(source, 0, index);
  }

  /** Some of the groups that hold all sources of the given one. */
  holding({ sources }: Group): Group[] {
    const holders: Group[] = [];
    const first: Prefix | undefined = sources[0];
    if (first === undefined) return holders;
    const seen = new Set<number>();
    this.#sources.find(first, 0, (index) => {
      const group = this.#groups[index] as Group;
      if (seen.has(index) || !containsAll(group.sources, sources)) return false;
      seen.add(index);
      return holders.push(group) === MAX_OUTER_GROUPS;
    });
    return holders;
  }
}

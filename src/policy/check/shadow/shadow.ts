import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { isContradictory } from '#policy/model/rules/rule-coverage.js';
import { ContainingGroups } from './containing-groups.js';
import { RuleIndex } from './rule-index.js';

/**
 * A warning. `pointer` is the JSON pointer of a rule that can never match. `by` is the pointer of the earlier
 * rule that decides all its packets.
 */
export type Shadow = { readonly pointer: string; readonly by: string };

/**
 * After this many searches of one rule in another group, `shadowedRules` searches each rule only in its own
 * group. So it may miss shadowed rules of a very large policy.
 */
const CROSS_GROUP_SEARCHES = 300_000;

/**
 * Finds rules that can never match because one earlier rule decides all their packets. The earlier rule is in
 * the same group, or in a group that contains all sources of the rule's group. A rule is not found if only
 * several earlier rules together cover it.
 */
export function shadowedRules(
  { groups }: Policy,
  unreachable: ReadonlySet<number>,
  sources: ContainingGroups = new ContainingGroups(),
): Shadow[] {
  const found: Shadow[] = [];
  const containingGroups = sources.of(groups, unreachable);
  let searches = 0;
  for (const [index, group] of groups.entries()) {
    if (unreachable.has(index)) continue;
    const own = shadowsWithin(group.rules);
    const overlapping = searches <= CROSS_GROUP_SEARCHES ? containingGroups.get(index) : undefined;
    if (own.length === 0 && overlapping === undefined) continue;
    const hidden: Hidden[] = [{ containing: group, pairs: own }];
    for (const number of overlapping ?? []) {
      const containing = itemAt(groups, number);
      hidden.push({ containing, pairs: shadowsBehind(group.rules, containing.rules) });
      searches += group.rules.length;
    }
    for (const shadow of shadowsOf(group, hidden)) found.push(shadow);
  }
  return found;
}

type Hidden = { readonly containing: Group; readonly pairs: readonly Pair[] };

/**
 * Returns the shadowed rules of a group in rule order. If several earlier rules in `hidden` cover a rule,
 * `by` is the first of them.
 */
function shadowsOf({ rules, pointer }: Group, hidden: readonly Hidden[]): Shadow[] {
  const by = new Map<number, string>();
  for (const { containing, pairs } of hidden) {
    for (const pair of pairs) if (!by.has(pair.place)) by.set(pair.place, containing.pointer + pair.by.pointer);
  }
  return [...by]
    .sort(([left], [right]) => left - right)
    .map(([place, hider]) => ({ pointer: pointer + itemAt(rules, place).pointer, by: hider }));
}

type Rules = readonly Rule[];
/** `place` is the index of a shadowed rule in its group. `by` is the earlier rule that covers it. */
type Pair = { readonly place: number; readonly by: Rule };

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

function shadowsBehind(rules: Rules, containing: Rules): readonly Pair[] {
  const known = remembered(behind, rules, () => new WeakMap<Rules, readonly Pair[]>());
  return remembered(known, containing, () => {
    const index = remembered(indexes, containing, () => {
      const filed = new RuleIndex(containing.length);
      for (const rule of containing) filed.add(rule);
      return filed;
    });
    return pairsOf(rules, (rule) => index.findCover(rule));
  });
}

function pairsOf(rules: Rules, coverOf: (rule: Rule) => Rule | undefined): readonly Pair[] {
  const pairs: Pair[] = [];
  for (const [place, rule] of rules.entries()) {
    const by = coverOf(rule);
    if (by !== undefined && !isContradictory(rule)) pairs.push({ place, by });
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

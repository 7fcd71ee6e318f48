import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { commonSubsequence } from './common-subsequence.js';
import { isSameRule, ruleKey, samePrefixes } from './same-rule.js';

/**
 * How a part of a policy changed. `moved`: only its place in the order of evaluation. `sources`: the sources
 * of a group.
 */
type ChangeKind = 'added' | 'removed' | 'changed' | 'moved' | 'sources';

/** The part of a policy whose change causes a difference. `rule` is null for a default. */
export type Cause =
  | { readonly part: 'rule'; readonly change: ChangeKind; readonly group: string; readonly rule: string }
  | { readonly part: 'group' | 'group_default'; readonly change: ChangeKind; readonly group: string }
  | { readonly part: 'policy_default'; readonly change: ChangeKind };

/** Two groups that both policies have, in the same order of groups. */
export type GroupPair = {
  readonly indexes: readonly [number, number];
  /** Whether rules, defaults, modes and sources are all equal. */
  readonly isSame: boolean;
  readonly sameSources: boolean;
  /** Whether the groups have the same selectors. */
  readonly sameSelectors: boolean;
  /** For each side, the tag of each changed rule. Rules that both sides have in the same order have none. */
  readonly changedRules: readonly [ReadonlyMap<Rule, number>, ReadonlyMap<Rule, number>];
  /** The tag of the default, if the defaults differ. */
  readonly changedDefault: number;
};

/**
 * Which groups and rules two policies have in common, in the same order. All other rules are changed: a flow
 * that matches none of them is decided alike.
 */
export class Alignment {
  /** For each side, the pair of each group; undefined if the group has no pair. */
  readonly pairs: readonly [readonly (GroupPair | undefined)[], readonly (GroupPair | undefined)[]];
  /** The tag of the policy default, if the defaults differ; otherwise 0. */
  readonly changedDefault: number;
  readonly #groups: readonly (readonly Group[])[];
  readonly #causes: Cause[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #ofParts = new Map<Rule | Group, number>();

  /** `eachRule`: each rule of a group without a pair has its own tag, also if it is one of many. */
  constructor(
    before: Policy,
    after: Policy,
    private readonly eachRule: boolean,
  ) {
    this.#groups = [before.groups, after.groups];
    const pairs: [(GroupPair | undefined)[], (GroupPair | undefined)[]] = [[], []];
    const [ids, otherIds] = [before, after].map(({ groups }) => groups.map(({ id }) => id)) as [string[], string[]];
    const common = ids.length === 0 || otherIds.length === 0 ? [] : commonSubsequence(ids, otherIds);
    for (const [one, other] of common) {
      const pair = this.#pair(itemAt(before.groups, one), itemAt(after.groups, other), [one, other]);
      pairs[0][one] = pair;
      pairs[1][other] = pair;
    }
    this.pairs = pairs;
    const { default: from } = before;
    const { default: to } = after;
    const isSame = from.action === to.action && from.mode === to.mode;
    this.changedDefault = isSame && !eachRule ? 0 : this.#tag({ part: 'policy_default', change: 'changed' });
  }

  causeOf(tag: number): Cause {
    return itemAt(this.#causes, tag - 1);
  }

  /**
   * Returns the tag of a rule. `pair` is undefined if the source does not belong to both groups of the pair.
   */
  tagOfRule(side: 0 | 1, group: number, rule: Rule, pair: GroupPair | undefined): number {
    if (pair !== undefined) return pair.changedRules[side].get(rule) ?? 0;
    if (!this.eachRule) return this.#tagOfGroup(side, group);
    const { id } = itemAt(itemAt(this.#groups, side), group);
    return this.#once(rule, () => ({ part: 'rule', change: GONE[side], group: id, rule: rule.id }));
  }

  tagOfDefault(side: 0 | 1, group: number, pair: GroupPair | undefined): number {
    if (pair !== undefined) return pair.changedDefault;
    if (!this.eachRule) return this.#tagOfGroup(side, group);
    const { id } = itemAt(itemAt(this.#groups, side), group);
    return this.#tag({ part: 'group_default', change: GONE[side], group: id });
  }

  #tagOfGroup(side: 0 | 1, index: number): number {
    const group = itemAt(itemAt(this.#groups, side), index);
    return this.#once(group, () => {
      const others = itemAt(this.#groups, side === 0 ? 1 : 0);
      const change = others.some(({ id }) => id === group.id) ? 'moved' : GONE[side];
      return { part: 'group', change: this.pairs[side][index] === undefined ? change : 'sources', group: group.id };
    });
  }

  /** Returns the tag of a rule or group. Calls `cause` only for the first time. */
  #once(part: Rule | Group, cause: () => Cause): number {
    const known = this.#ofParts.get(part);
    if (known !== undefined) return known;
    const tag = this.#tag(cause());
    this.#ofParts.set(part, tag);
    return tag;
  }

  #pair(one: Group, other: Group, indexes: readonly [number, number]): GroupPair {
    const changedRules = [new Map<Rule, number>(), new Map<Rule, number>()] as const;
    if (one.rules !== other.rules) this.#compareRules(one, other, changedRules);
    const sameDefault =
      one.defaultAction === other.defaultAction && (one.defaultAction === undefined || one.mode === other.mode);
    const changedDefault = sameDefault
      ? 0
      : this.#tag({
          part: 'group_default',
          change: one.defaultAction === undefined ? 'added' : other.defaultAction === undefined ? 'removed' : 'changed',
          group: one.id,
        });
    const sameSelectors =
      one.selectors === other.selectors ||
      (one.selectors.length === other.selectors.length &&
        one.selectors.every(({ key }, at) => key === other.selectors[at]?.key));
    const sameSources = samePrefixes(one.sources, other.sources);
    const isSame = sameDefault && sameSelectors && changedRules[0].size + changedRules[1].size === 0 && sameSources;
    return { indexes, isSame, sameSources, sameSelectors, changedRules, changedDefault };
  }

  #compareRules(one: Group, other: Group, changed: readonly [Map<Rule, number>, Map<Rule, number>]): void {
    const shorter = Math.min(one.rules.length, other.rules.length);
    let from = 0;
    while (from < shorter && isSameRule(itemAt(one.rules, from), itemAt(other.rules, from))) from++;
    let tail = 0;
    while (
      tail < shorter - from &&
      isSameRule(itemAt(one.rules, one.rules.length - 1 - tail), itemAt(other.rules, other.rules.length - 1 - tail))
    )
      tail++;
    const rest = [one, other].map(({ rules }) => rules.slice(from, rules.length - tail)) as [Rule[], Rule[]];
    const keys = rest.map((rules) => rules.map(ruleKey)) as [string[], string[]];
    const common = commonSubsequence(...keys);
    const kept = [new Set(common.map(([at]) => at)), new Set(common.map(([, at]) => at))] as const;
    const changedRules = rest.map((rules, side) => rules.filter((_, at) => !kept[side as 0 | 1].has(at))) as [
      Rule[],
      Rule[],
    ];
    const byId = changedRules.map((rules) => new Map(rules.map((rule) => [rule.id, rule]))) as [
      Map<string, Rule>,
      Map<string, Rule>,
    ];
    for (const side of [0, 1] as const) {
      for (const rule of changedRules[side]) {
        const twin = byId[side === 0 ? 1 : 0].get(rule.id);
        const change = twin === undefined ? GONE[side] : isSameRule(rule, twin) ? 'moved' : 'changed';
        changed[side].set(rule, this.#tag({ part: 'rule', change, group: one.id, rule: rule.id }));
      }
    }
  }

  #tag(cause: Cause): number {
    const key = JSON.stringify(cause);
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const tag = this.#causes.push(cause);
    this.#numbers.set(key, tag);
    return tag;
  }
}

const GONE = ['removed', 'added'] as const;

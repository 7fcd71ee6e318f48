import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { commonSubsequence } from './common-subsequence.js';
import { isSameRule, ruleKey, samePrefixes } from './same-rule.js';

/**
 * How a part of a policy changed. `moved`: only its position in the order of evaluation changed. `sources`:
 * the sources of a group changed.
 */
type ChangeKind = 'added' | 'removed' | 'changed' | 'moved' | 'sources';

/** The part of a policy whose change is the cause of a difference. `rule` is null for a default. */
export type Cause =
  | { readonly part: 'rule'; readonly change: ChangeKind; readonly group: string; readonly rule: string }
  | { readonly part: 'group' | 'group_default'; readonly change: ChangeKind; readonly group: string }
  | { readonly part: 'policy_default'; readonly change: ChangeKind };

/** The same group in both compared policies. The pairs have the same order in both. */
export type GroupPair = {
  readonly indexes: readonly [number, number];
  /** Whether rules, defaults, modes and sources are all equal. */
  readonly isSame: boolean;
  readonly sameSources: boolean;
  /** Whether the groups have the same selectors. */
  readonly sameSelectors: boolean;
  /**
   * For each of the two policies, a number (tag) for each changed rule. Rules that both policies have in the
   * same order have no number.
   */
  readonly changedRules: readonly [ReadonlyMap<Rule, number>, ReadonlyMap<Rule, number>];
  /** A number (tag) for the default of the group if it differs between the policies. */
  readonly changedDefault: number;
};

/**
 * Finds the groups and rules that two policies have in common, in the same order. All other rules count as
 * changed. Both policies decide a flow in the same way if it matches no changed rule.
 */
export class Alignment {
  /**
   * For each of the two policies, the pair to which each group belongs; undefined if the other policy lacks
   * the group.
   */
  readonly pairs: readonly [readonly (GroupPair | undefined)[], readonly (GroupPair | undefined)[]];
  /** A number (tag) for the default of the policy if it differs between the policies; otherwise 0. */
  readonly changedDefault: number;
  readonly #groups: readonly (readonly Group[])[];
  readonly #causes: Cause[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #ofParts = new Map<Rule | Group, number>();

  /**
   * `eachRule`: each rule of a group that only one policy has gets its own number (tag), also if the group
   * has many rules.
   */
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
   * Returns the number (tag) of a changed rule; 0 for a rule that both policies have. `pair` is undefined if
   * the source does not belong to the group in both policies.
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

  /**
   * Returns the number (tag) of a rule or group. A part without a number gets one, for the change that
   * `cause` returns.
   */
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

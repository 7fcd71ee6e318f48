import { intersection, type Span } from '#analysis/engine/address-space.js';
import { Axis } from '#analysis/engine/axis.js';
import { groupOf, isConditional, populationsOf, type Scoped, scoped } from '#analysis/engine/populations.js';
import { itemAt } from '#arrays/read.js';
import type { Budget } from '#policy/model/budget.js';
import type { PolicyRules } from './policy-rules.js';

/**
 * A set of sources of a group that belong to the same groups. `codes`: these groups in the order of
 * evaluation, up to the first one whose default decides every remaining flow. `end`: the index of that group;
 * null for the default of the policy.
 */
export type GroupPopulation = { readonly codes: readonly Scoped[]; readonly end: number | null };

/**
 * The other groups to consider. `front`: only the groups that are evaluated before a group, which is
 * sufficient to find its unreachable rules.
 */
export type Looked = 'front' | 'all';

/** The sources of one group, divided into sets of sources that also belong to the same other groups. */
export class GroupPopulations {
  /** The sets of sources (populations) whose flows can reach the rules of the group. */
  readonly reaching: readonly GroupPopulation[];
  /** The sets of sources (populations) for which the default of an earlier group decides every flow. */
  readonly hidden: readonly GroupPopulation[];
  /** The indexes of all groups that contain some of these sources. */
  readonly groups: ReadonlySet<number>;
  /** Whether the default of a group applies to some sources only if a selector selects them. */
  readonly hasConditionalDefaults: boolean;
  /** For each group, the indexes in `reaching` of the sets of sources that belong to it. */
  readonly #populations = new Map<number, number[]>();
  /** For each set of sources (population), a text for the defaults that are evaluated for it in any case. */
  readonly #base: readonly string[];
  readonly #ofBase = new Map<string, number[]>();

  constructor(
    private readonly rules: PolicyRules,
    readonly group: number,
    readonly looked: Looked,
    budget: Budget,
  ) {
    const { space } = rules;
    const own = rules.sourcesOf(group);
    const within: readonly Span[] = own.hasSelectors ? [space.spanOf({ address: 0, length: 0 })] : own.spans;
    const last = looked === 'front' ? group : undefined;
    const near = (within.length === 0 ? [] : rules.groupsNear(within, last))
      .map((other) => ({ ...other, spans: intersection(other.spans, within) }))
      .filter(({ spans, hasSelectors }) => hasSelectors || spans.length > 0);
    const axis = new Axis(space, [...near.flatMap(({ spans }) => spans), ...within]);
    const pieces = within.flatMap(({ start, end }) => [axis.indexOf(start), axis.indexOf(end)]);
    const reaching: GroupPopulation[] = [];
    const hidden: GroupPopulation[] = [];
    for (const { groups } of populationsOf(near, axis, pieces, budget)) {
      const population = this.#untilDefault(groups[0]);
      const isReached = population.codes.some((code) => groupOf(code) === group);
      (isReached ? reaching : hidden).push(population);
    }
    this.reaching = reaching;
    this.hidden = hidden;
    this.groups = new Set([...reaching, ...hidden].flatMap(({ codes }) => codes.map(groupOf)));
    this.hasConditionalDefaults = [...this.groups].some((index) => {
      const { selectors, defaultAction } = rules.groupAt(index);
      return selectors.length > 0 && defaultAction !== undefined;
    });
    this.#base = reaching.map((population) => this.#baseOf(population));
    for (const [at, { codes }] of reaching.entries()) {
      for (const code of codes) add(this.#populations, groupOf(code), at);
      add(this.#ofBase, itemAt(this.#base, at), at);
    }
  }

  /**
   * Returns sets of sources (populations) whose flows can reach the group: one for each different list of
   * rules, if only the rules of these groups count.
   */
  distinct(groups: Iterable<number>): GroupPopulation[] {
    const keys = new Map<number, string>();
    for (const group of groups) {
      const own = this.#populations.get(group);
      const isCommon = own?.length === this.reaching.length && this.rules.groupAt(group).selectors.length === 0;
      if (own === undefined || isCommon) continue;
      for (const at of own) keys.set(at, `${keys.get(at) ?? ''} ${group}${this.#isConditional(at, group) ? '?' : ''}`);
    }
    const found = new Map<string, number>();
    const touched = new Map<string, number>();
    for (const [at, key] of keys) {
      const base = itemAt(this.#base, at);
      touched.set(base, (touched.get(base) ?? 0) + 1);
      found.set(`${base}|${key}`, at);
    }
    for (const [base, all] of this.#ofBase) {
      if (all.length === touched.get(base)) continue;
      const other = all.find((at) => !keys.has(at));
      if (other !== undefined) found.set(base, other);
    }
    return [...found.values()].map((at) => itemAt(this.reaching, at));
  }

  #isConditional(at: number, group: number): boolean {
    return itemAt(this.reaching, at).codes.includes(scoped(group, true));
  }

  #untilDefault(codes: readonly Scoped[]): GroupPopulation {
    const end = codes.findIndex(
      (code) => !isConditional(code) && this.rules.groupAt(groupOf(code)).defaultAction !== undefined,
    );
    if (end < 0) return { codes, end: null };
    return { codes: codes.slice(0, end + 1), end: groupOf(itemAt(codes, end)) };
  }

  #baseOf({ codes, end }: GroupPopulation): string {
    const own = codes.includes(scoped(this.group, true)) ? '?' : '';
    const conditional = codes.filter(
      (code) => isConditional(code) && this.rules.groupAt(groupOf(code)).defaultAction !== undefined,
    );
    return `${this.rules.outcomeAtEnd(end)} ${own} ${conditional.join(' ')}`;
  }
}

function add<Key>(lists: Map<Key, number[]>, key: Key, value: number): void {
  const known = lists.get(key);
  if (known === undefined) lists.set(key, [value]);
  else known.push(value);
}

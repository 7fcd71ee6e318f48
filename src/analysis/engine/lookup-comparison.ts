import { itemAt } from '#arrays/read.js';
import type { Policy, Rule } from '#contracts/policy/policy-model.js';
import { lookupExclusion } from '#policy/evaluate/lookup/evaluate-lookup.js';
import type { Budget } from '#policy/model/budget.js';
import type { Alignment } from './alignment.js';
import { ALWAYS, type Conditions } from './conditions.js';
import { type Change, DecisionLists, type Entry, OPEN, outcomeFor } from './decision-lists.js';
import type { ValueSet } from './pieces.js';
import { groupOf, isConditional } from './populations.js';
import { type Member, type Planned, type RelevantRules, SIDES } from './relevant-rules.js';
import { entriesOfDefault, forLookups, lookupEntriesOf } from './rule-entries.js';

/** The changes of the DNS lookups of some sources (D11). */
export type ChangedLookups = { readonly sources: readonly ValueSet[]; readonly changes: readonly Change[] };

/**
 * Compares how two policies decide the DNS lookups of sources that belong to the same groups (populations).
 */
export class LookupComparison {
  readonly #lists: DecisionLists;
  readonly #nodes = new Map<Member, number>();
  readonly #defaults: readonly number[];
  readonly #found = new Map<number, ValueSet[]>();

  constructor(
    policies: readonly [Policy, Policy],
    private readonly alignment: Alignment,
    private readonly relevant: RelevantRules,
    private readonly conditions: Conditions,
    budget: Budget,
  ) {
    this.#lists = new DecisionLists(conditions, budget);
    this.#defaults = policies.map(({ default: { action, mode } }) => {
      const decided = forLookups({ action, mode });
      const outcome = outcomeFor(decided.action, decided.mode);
      return this.#lists.of([{ condition: ALWAYS, outcome, tag: alignment.changedDefault }]);
    });
  }

  /** Returns whether a rule or default changed that can decide DNS lookups of these sources. */
  isChanged({ changed }: Planned): boolean {
    return this.alignment.changedDefault > 0 || changed.some((member) => this.#canDecide(member));
  }

  compare({ sources, members }: Planned): void {
    const [one, other] = SIDES.map((side) => {
      let list = OPEN;
      for (const member of members[side]) list = this.#lists.orElse(list, this.#listOf(member));
      return this.#lists.orElse(list, itemAt(this.#defaults, side));
    }) as [number, number];
    for (const number of this.#lists.differences(one, other)) {
      const sets = this.#found.get(number);
      if (sets === undefined) this.#found.set(number, [sources]);
      else sets.push(sources);
    }
  }

  get changes(): readonly ChangedLookups[] {
    return [...this.#found].map(([number, sources]) => ({ sources, changes: this.#lists.changesOf(number) }));
  }

  #canDecide(member: Member): boolean {
    const { side, pair } = member;
    const { rules, defaultAction } = this.relevant.groupOf(member);
    if (pair === undefined) return defaultAction !== undefined || rules.some(takesPartInLookups);
    return pair.changedDefault > 0 || [...pair.changedRules[side].keys()].some(takesPartInLookups);
  }

  #listOf(member: Member): number {
    const list = this.#nodes.get(member) ?? this.#lists.of(this.#entriesOf(member));
    this.#nodes.set(member, list);
    return list;
  }

  #entriesOf(member: Member): Entry[] {
    const { side, code, pair } = member;
    const { rules, defaultAction, mode, selectors } = this.relevant.groupOf(member);
    const conditional = isConditional(code) ? selectors : null;
    const found = rules.flatMap((rule) =>
      lookupEntriesOf(rule, this.alignment.tagOfRule(side, groupOf(code), rule, pair), conditional, this.conditions),
    );
    if (defaultAction === undefined) return found;
    const tag = this.alignment.tagOfDefault(side, groupOf(code), pair);
    return [
      ...found,
      ...entriesOfDefault(forLookups({ action: defaultAction, mode }), tag, conditional, this.conditions),
    ];
  }
}

/** Whether a rule can decide a DNS lookup (D11). */
export const takesPartInLookups = (rule: Rule): boolean => lookupExclusion(rule) === undefined;

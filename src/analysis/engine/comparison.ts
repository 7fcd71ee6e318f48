import { itemAt } from '#arrays/read.js';
import type { Policy, Rule } from '#contracts/policy/policy-model.js';
import { MAX_RANKS } from '#contracts/policy/verdict-word.js';
import { Budget, CompileTooLarge } from '#policy/model/budget.js';
import {
  type AddressSpace,
  everythingIn,
  type FamilySpans,
  intersection,
  mergedSpans,
  overlap,
  type Span,
  spansOf,
} from './address-space.js';
import { Alignment, type Cause, type GroupPair } from './alignment.js';
import { Axis } from './axis.js';
import { ALWAYS, Conditions, type ConditionsOptions } from './conditions.js';
import { type Change, outcomeFor } from './decision-lists.js';
import { LookupComparison, takesPartInLookups } from './lookup-comparison.js';
import { union, type ValueSet } from './pieces.js';
import { decidingGroups, groupOf, isConditional, populationsOf, type SourceGroup } from './populations.js';
import {
  type Member,
  type Part,
  type Planned,
  type Question,
  RelevantRules,
  SIDES,
  type Side,
  wholeShape,
} from './relevant-rules.js';
import { RuleDiagrams } from './rule-diagrams.js';
import { entriesOfDefault, entriesOfRule } from './rule-entries.js';
import { hasFlows } from './rule-shape.js';

/**
 * A set of flows of one family that changes alike: the product of four sets. Regions have no flow in common.
 */
export type Region = {
  readonly space: AddressSpace;
  readonly sources: readonly Span[];
  readonly destinations: readonly Span[];
  /** Values of `portMapKey`. */
  readonly keys: ValueSet;
  readonly sourcePorts: ValueSet;
  readonly changes: readonly Change[];
};

/**
 * A set of sources whose DNS lookups change in the same way (D11). The names in conditions are those of the
 * lookup.
 */
type LookupRegion = { readonly sources: FamilySpans; readonly changes: readonly Change[] };

export type Compared = {
  readonly regions: readonly Region[];
  /** The changed DNS lookups. Empty for a question (`ask`), which is about flows alone. */
  readonly lookups: readonly LookupRegion[];
  /** The conditions of `lookups`. */
  readonly lookupConditions: Conditions;
  /**
   * The sources of each family that were not compared, because the limit of steps was reached. Empty if the
   * comparison is complete.
   */
  readonly left: readonly FamilySpans[];
  readonly conditions: Conditions;
  /** Returns the cause of an entry with a tag. */
  causeOf(tag: number): Cause;
  /**
   * Returns rules of the policy after the change that a changed rule can cover, and the changed rules; at
   * most `limit` of them. `group` and `rule` are indexes.
   */
  coverable(limit: number): RuleIndex[];
};
type RuleIndex = { readonly group: number; readonly rule: number };

export type CompareOptions = {
  /** The families whose flows are compared. */
  readonly spaces: readonly AddressSpace[];
  /** Compares only these flows. A family without a question has none. */
  readonly questions?: ReadonlyMap<AddressSpace, Question>;
  /**
   * The maximum number of steps of all families together. A step is the visit or the storage of one interval
   * in a decision diagram.
   */
  readonly steps?: number;
  /**
   * Returns whether a condition other than addresses and ports, such as a granted hostname, is fulfilled;
   * undefined if this is not known.
   */
  readonly known?: ConditionsOptions['known'];
  /** Gives each rule its own tag, so that a region has one deciding rule on each side. */
  readonly byRule?: boolean;
};

/** Compares how two policies decide flows. The flows of each family are compared on their own. */
export function compare(before: Policy, after: Policy, options: CompareOptions): Compared {
  const shared = sharedParts([before, after], options);
  const families = options.spaces.map((space) => new FamilyComparison(shared, space, options));
  // The family with fewer groups is compared first, so that a large one cannot use all steps before it.
  for (const family of [...families].sort((one, other) => one.size - other.size)) family.run();
  const { alignment, conditions, lookupConditions } = shared;
  return {
    regions: families.flatMap(({ regions }) => regions),
    lookups: families.flatMap(({ lookups }) => lookups),
    lookupConditions,
    left: families.map(({ left }) => left).filter(({ spans }) => spans.length > 0),
    conditions,
    causeOf: (tag) => alignment.causeOf(tag),
    coverable: (limit) => {
      const found = families.map((family) => family.coverable(limit));
      const rules = [...found.flatMap(({ changed }) => changed), ...found.flatMap(({ others }) => others)];
      return [...new Map(rules.map((at) => [`${at.group} ${at.rule}`, at])).values()].slice(0, limit);
    },
  };
}

/** The parts of a comparison that all families share: causes and conditions have the same numbers. */
type Shared = {
  readonly policies: readonly [Policy, Policy];
  readonly alignment: Alignment;
  readonly conditions: Conditions;
  readonly lookupConditions: Conditions;
  /** Counts the steps until the rules that matter are known. `budget` counts those of the comparison. */
  readonly planning: Budget;
  readonly budget: Budget;
  readonly lookupBudget: Budget;
};

function sharedParts(policies: readonly [Policy, Policy], options: CompareOptions): Shared {
  const { known, byRule = false, steps = Number.POSITIVE_INFINITY } = options;
  const limits = { entries: Number.POSITIVE_INFINITY, steps, ranks: Number.POSITIVE_INFINITY };
  return {
    policies,
    alignment: new Alignment(...policies, byRule),
    conditions: new Conditions(known === undefined ? {} : { known }),
    lookupConditions: new Conditions({ aboutOneName: true }),
    planning: new Budget(limits),
    budget: new Budget(limits),
    lookupBudget: new Budget(limits),
  };
}

type ChangedSources = { readonly axis: Axis; readonly groups: readonly SourceGroup[]; readonly within: ValueSet };

/**
 * Diagrams with those that each comparison needs: `mask` decides all flows outside of the question, and
 * `defaults` are the defaults of both policies.
 */
type BegunDiagrams = {
  readonly diagrams: RuleDiagrams;
  readonly mask: number;
  readonly defaults: readonly number[];
};

/** Compares the flows of one family. */
class FamilyComparison {
  regions: readonly Region[] = [];
  lookups: readonly LookupRegion[] = [];
  left: FamilySpans;
  readonly #alignment: Alignment;
  readonly #relevant: RelevantRules;
  readonly #question: Question | undefined;
  readonly #changed: ChangedSources;
  readonly #nodes = new Map<Part, number>();
  /** The decision diagrams of the rules, by the number of the group (member) and the index of the rule. */
  readonly #ruleNodes = new Map<number, number>();
  readonly #left: ValueSet[] = [];
  #planned: readonly Planned[] = [];

  constructor(
    private readonly shared: Shared,
    private readonly space: AddressSpace,
    { questions }: CompareOptions,
  ) {
    this.left = { space, spans: [] };
    this.#alignment = shared.alignment;
    const question = questions === undefined ? undefined : (questions.get(space) ?? { sources: [] });
    this.#question = question;
    this.#relevant = new RelevantRules(shared.policies, this.#alignment, shared.planning, { space, question });
    this.#changed = this.#changedSources();
  }

  /** The number of source groups that the comparison looks at. */
  get size(): number {
    return this.#changed.groups.length;
  }

  run(): void {
    const { axis, groups, within } = this.#changed;
    const populations = this.#within(within, () => populationsOf(groups, axis, within, this.shared.planning)) ?? [];
    const planned: Planned[] = [];
    for (const population of populations)
      this.#within(population.sources, () => {
        const plan = this.#relevant.plan(population);
        if (plan !== undefined) planned.push(plan);
      });
    this.#planned = planned;
    if (planned.length > 0) this.regions = this.#compareFlows(planned, axis);
    if (this.#comparesLookups) this.lookups = this.#lookups(planned, axis);
    this.left = { space: this.space, spans: this.#spans(union(this.#left), axis) };
  }

  #compareFlows(planned: readonly Planned[], axis: Axis): readonly Region[] {
    const destinations = new Axis(this.space, this.#destinationsOf(planned));
    // The other family can have used all steps.
    const begun = this.#within(union(planned.map(({ sources }) => sources)), () => this.#beginDiagrams(destinations));
    if (begun === undefined) return [];
    const { diagrams, mask, defaults } = begun;
    const found = new Map<number, ValueSet[]>();
    for (const { sources, parts } of planned) {
      this.#within(sources, () => {
        const [one, other] = SIDES.map((side) => {
          let node = mask;
          for (const part of parts[side]) node = diagrams.orElse(node, this.#nodeOf(part, diagrams));
          return diagrams.orElse(node, itemAt(defaults, side));
        }) as [number, number];
        for (const piece of diagrams.differences(one, other)) {
          const sets = found.get(piece);
          if (sets === undefined) found.set(piece, [sources]);
          else sets.push(sources);
        }
      });
    }
    return this.#regions(found, diagrams, axis, destinations);
  }

  #beginDiagrams(destinations: Axis): BegunDiagrams {
    const { conditions, budget, policies } = this.shared;
    const diagrams = new RuleDiagrams(destinations, conditions, budget);
    return {
      diagrams,
      mask: this.#question === undefined ? 0 : diagrams.mask(wholeShape(this.#question)),
      defaults: policies.map(({ default: { action, mode } }) => {
        const outcome = outcomeFor(action, mode);
        return diagrams.everywhere([{ condition: ALWAYS, outcome, tag: this.#alignment.changedDefault }]);
      }),
    };
  }

  /** Returns the rules of `Compared.coverable` for this family. */
  coverable(limit: number): { readonly changed: readonly RuleIndex[]; readonly others: readonly RuleIndex[] } {
    const changed: RuleIndex[] = [];
    const others: RuleIndex[] = [];
    const seen = new Set<Part | Rule>();
    for (const { parts, changed: members } of this.#planned) {
      const first = members.find(({ side, pair }) => side === 1 && canCover(pair));
      if (first === undefined) continue;
      for (const part of parts[1]) {
        const { member, rules } = part;
        if (seen.has(part) || member.code < first.code) continue;
        seen.add(part);
        const group = groupOf(member.code);
        for (const at of rules) {
          if (changed.length >= limit || others.length >= 4 * limit) break;
          const rule = itemAt(this.#relevant.groupOf(member).rules, at);
          if (seen.has(rule)) continue;
          seen.add(rule);
          const isChanged = this.#alignment.tagOfRule(1, group, rule, member.pair) > 0;
          (isChanged ? changed : others).push({ group, rule: at });
        }
      }
    }
    return { changed, others };
  }

  /**
   * Runs `work` for a set of sources. If the limit of steps is reached, notes that the sources are left, and
   * returns undefined.
   */
  #within<Result>(sources: ValueSet, work: () => Result): Result | undefined {
    if (this.#left.length === 0) {
      try {
        return work();
      } catch (error) {
        if (!(error instanceof CompileTooLarge)) throw error;
      }
    }
    this.#left.push(sources);
    return undefined;
  }

  /** Whether the comparison is about DNS lookups too. */
  get #comparesLookups(): boolean {
    return this.#question === undefined;
  }

  /** Returns the sources for which a group or default changed, and all groups to which they belong. */
  #changedSources(): ChangedSources {
    const everything = everythingIn(this.space);
    const isAsked = this.#question === undefined || hasFlows(wholeShape(this.#question));
    const asked = isAsked ? (this.#question?.sources ?? [everything]) : [];
    const groups = SIDES.flatMap((side) => this.#groupsWithin(side, asked));
    const changed = groups.filter(({ side, group }) => this.#alignment.pairs[side][group]?.isSame !== true);
    const isEverywhere = this.#alignment.changedDefault > 0 || changed.some(({ hasSelectors }) => hasSelectors);
    const changes = isEverywhere ? [everything] : mergedSpans(changed.flatMap(({ spans }) => spans));
    const within = intersection(asked, changes);
    if (within.length === 0) return { axis: new Axis(this.space, []), groups: [], within: [] };
    const near = groups.filter(({ spans, hasSelectors }) => hasSelectors || overlap(spans, within));
    const deciding = this.#thatMatter(near, changed).map((group) => ({
      ...group,
      spans: intersection(group.spans, within),
    }));
    const axis = new Axis(this.space, [...deciding.flatMap(({ spans }) => spans), ...within]);
    const pieces = within.flatMap(({ start, end }) => [axis.indexOf(start), axis.indexOf(end)]);
    return { axis, groups: deciding, within: pieces };
  }

  /**
   * Leaves out the groups that have no default, and no rule that matches a flow of the question or of a
   * changed rule. A comparison of DNS lookups needs all groups.
   */
  #thatMatter(groups: readonly SourceGroup[], changed: readonly SourceGroup[]): readonly SourceGroup[] {
    if (this.#question === undefined && this.#alignment.changedDefault > 0) return groups;
    const isChanged = (group: SourceGroup) => this.#relevant.changedRulesOf(group).some(takesPartInLookups);
    if (this.#comparesLookups && changed.some(isChanged)) return groups;
    return this.#relevant.thatMatter(groups, changed);
  }

  /**
   * Returns the groups of one side that decide something, and to which one of the asked sources can belong.
   */
  #groupsWithin(side: Side, asked: readonly Span[]): SourceGroup[] {
    const found: SourceGroup[] = [];
    const { groups } = this.shared.policies[side];
    for (const group of decidingGroups.of(groups, this.space)) {
      const { sources, selectors } = itemAt(groups, group);
      const spans = spansOf(sources, this.space);
      if (selectors.length === 0 && !overlap(spans, asked)) continue;
      found.push({ side, group, spans, hasSelectors: selectors.length > 0 });
    }
    return found;
  }

  *#destinationsOf(planned: readonly Planned[]): Generator<Span> {
    const seen = new Set<Part>();
    for (const part of planned.flatMap(({ parts }) => parts.flat())) {
      if (seen.has(part)) continue;
      seen.add(part);
      const { rules } = this.#relevant.groupOf(part.member);
      for (const at of part.rules) yield* this.#relevant.shapeOf(itemAt(rules, at)).destinations ?? [];
    }
    yield* this.#question?.destinations ?? [];
  }

  /** Returns the diagram of a group: its rules that matter, and its default. */
  #nodeOf(part: Part, diagrams: RuleDiagrams): number {
    const known = this.#nodes.get(part);
    if (known !== undefined) return known;
    const { member, rules } = part;
    const group = this.#relevant.groupOf(member);
    const nodes = rules.map((at) => {
      const key = member.number * MAX_RANKS + at;
      const node = this.#ruleNodes.get(key) ?? this.#ruleNode(itemAt(group.rules, at), member, diagrams);
      this.#ruleNodes.set(key, node);
      return node;
    });
    const { defaultAction, mode, selectors } = group;
    if (defaultAction !== undefined) {
      const tag = this.#alignment.tagOfDefault(member.side, groupOf(member.code), member.pair);
      const conditional = isConditional(member.code) ? selectors : null;
      nodes.push(
        diagrams.everywhere(
          entriesOfDefault({ action: defaultAction, mode }, tag, conditional, this.shared.conditions),
        ),
      );
    }
    const node = diagrams.sequence(nodes);
    this.#nodes.set(part, node);
    return node;
  }

  #ruleNode(rule: Rule, { side, code, pair }: Member, diagrams: RuleDiagrams): number {
    const tag = this.#alignment.tagOfRule(side, groupOf(code), rule, pair);
    const { selectors } = itemAt(this.shared.policies[side].groups, groupOf(code));
    const entries = entriesOfRule(rule, tag, isConditional(code) ? selectors : null, this.shared.conditions);
    return diagrams.within(this.#relevant.shapeOf(rule), entries);
  }

  #lookups(planned: readonly Planned[], axis: Axis): LookupRegion[] {
    const { policies, lookupConditions, lookupBudget } = this.shared;
    const lookups = new LookupComparison(policies, this.#alignment, this.#relevant, lookupConditions, lookupBudget);
    for (const plan of planned) if (lookups.isChanged(plan)) this.#within(plan.sources, () => lookups.compare(plan));
    return lookups.changes.map(({ sources, changes }) => ({
      sources: { space: this.space, spans: this.#spans(union(sources), axis) },
      changes,
    }));
  }

  /**
   * Returns the region of each piece. A node has one piece for each piece below, so no two regions agree in
   * all fields but one, and none can be joined.
   */
  #regions(
    found: ReadonlyMap<number, readonly ValueSet[]>,
    diagrams: RuleDiagrams,
    sources: Axis,
    destinations: Axis,
  ): Region[] {
    return [...found].map(([piece, sets]) => {
      const flows = diagrams.flowsOf(piece);
      return {
        ...flows,
        space: this.space,
        sources: this.#spans(union(sets), sources),
        destinations: this.#spans(flows.destinations, destinations),
      };
    });
  }

  #spans(set: ValueSet, axis: Axis): Span[] {
    const spans: Span[] = [];
    for (let at = 0; at < set.length; at += 2) spans.push(axis.spanOf(itemAt(set, at), itemAt(set, at + 1)));
    return spans;
  }
}

/** Whether a group after the change can cover rules that it did not cover before. */
const canCover = (pair: GroupPair | undefined): boolean =>
  pair === undefined || pair.changedRules[1].size > 0 || pair.changedDefault > 0;

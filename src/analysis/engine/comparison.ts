import { itemAt } from '#arrays/read.js';
import type { Policy, Rule } from '#contracts/policy/policy-model.js';
import { MAX_RANKS } from '#contracts/policy/verdict-word.js';
import { Budget, type CompileLimits, CompileTooLarge } from '#policy/model/budget.js';
import { type AddressSpace, intersection, mergedSpans, overlap, type Span, spansOf } from './address-space.js';
import { Alignment, type Cause, type GroupPair } from './alignment.js';
import { Axis } from './axis.js';
import { ALWAYS, Conditions, type ConditionsOptions } from './conditions.js';
import { type Change, outcomeFor } from './decision-lists.js';
import { LookupComparison, takesPartInLookups } from './lookup-comparison.js';
import { union, type ValueSet } from './pieces.js';
import { groupOf, isConditional, type Population, populationsOf, type SourceGroup } from './populations.js';
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

/** A set of flows that changes alike: the product of four sets. Regions have no flow in common. */
export type Region = {
  readonly sources: readonly Span[];
  readonly destinations: readonly Span[];
  /** Values of `portMapKey`. */
  readonly keys: ValueSet;
  readonly sourcePorts: ValueSet;
  readonly changes: readonly Change[];
};

/** Sources for which DNS lookups change alike (D11). The names in conditions are those of the lookup. */
type LookupRegion = { readonly sources: readonly Span[]; readonly changes: readonly Change[] };

export type Compared = {
  readonly regions: readonly Region[];
  /** Empty for a question. */
  readonly lookups: readonly LookupRegion[];
  /** The conditions of `lookups`. */
  readonly lookupConditions: Conditions;
  /** The sources that were not compared, because the limit of steps was reached. */
  readonly left: readonly Span[];
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
  readonly space: AddressSpace;
  /** Compares only these flows. */
  readonly question?: Question;
  /** The maximum number of steps. One step is one interval of a node that is visited or stored. */
  readonly steps?: number;
  /** Returns whether a fact beside addresses and ports holds; undefined if it is not known. */
  readonly known?: ConditionsOptions['known'];
  /** Gives each rule its own tag, so that a region has one deciding rule on each side. */
  readonly byRule?: boolean;
};

/** Compares how two policies decide flows. */
export function compare(before: Policy, after: Policy, options: CompareOptions): Compared {
  return new Comparison([before, after], options).run();
}

class Comparison {
  readonly #alignment: Alignment;
  readonly #space: AddressSpace;
  readonly #limits: CompileLimits;
  /** Counts the steps until the rules that matter are known. `#budget` counts those of the comparison. */
  readonly #planning: Budget;
  readonly #budget: Budget;
  readonly #relevant: RelevantRules;
  readonly #conditions: Conditions;
  readonly #lookupConditions = new Conditions({ aboutOneName: true });
  readonly #nodes = new Map<Part, number>();
  /** The diagrams of the rules, by the number of the member and the index of the rule. */
  readonly #ruleNodes = new Map<number, number>();
  #left: ValueSet[] = [];

  constructor(
    private readonly policies: readonly [Policy, Policy],
    private readonly options: CompareOptions,
  ) {
    this.#space = options.space;
    this.#conditions = new Conditions(options.known === undefined ? {} : { known: options.known });
    this.#alignment = new Alignment(...policies, options.byRule ?? false);
    const steps = options.steps ?? Number.POSITIVE_INFINITY;
    this.#limits = { entries: Number.POSITIVE_INFINITY, steps, ranks: Number.POSITIVE_INFINITY };
    this.#planning = new Budget(this.#limits);
    this.#budget = new Budget(this.#limits);
    this.#relevant = new RelevantRules(policies, this.#alignment, this.#planning, options);
  }

  run(): Compared {
    const { axis, groups, within } = this.#changedSources();
    let populations: readonly Population[] = [];
    this.#within(within, () => {
      populations = populationsOf(groups, axis, within, this.#planning);
    });
    const planned: Planned[] = [];
    for (const population of populations)
      this.#within(population.sources, () => {
        const plan = this.#relevant.plan(population);
        if (plan !== undefined) planned.push(plan);
      });
    const destinations = new Axis(this.#space, this.#destinationsOf(planned));
    const diagrams = new RuleDiagrams(destinations, this.#conditions, this.#budget);
    const { question } = this.options;
    const mask = question === undefined ? 0 : diagrams.mask(wholeShape(question));
    const defaults = this.policies.map(({ default: { action, mode } }) =>
      diagrams.everywhere([
        { condition: ALWAYS, outcome: outcomeFor(action, mode), tag: this.#alignment.changedDefault },
      ]),
    );
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
    return {
      regions: this.#regions(found, diagrams, axis, destinations),
      lookups: question === undefined ? this.#lookups(planned, axis) : [],
      lookupConditions: this.#lookupConditions,
      left: this.#spans(union(this.#left), axis),
      conditions: this.#conditions,
      causeOf: (tag) => this.#alignment.causeOf(tag),
      coverable: (limit) => this.#coverable(planned, limit),
    };
  }

  #coverable(planned: readonly Planned[], limit: number): RuleIndex[] {
    const changed: RuleIndex[] = [];
    const others: RuleIndex[] = [];
    const seen = new Set<Part | Rule>();
    for (const { parts, changed: members } of planned) {
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
    return [...changed, ...others].slice(0, limit);
  }

  /** Runs `work` for a set of sources. If the limit of steps is reached, notes that the sources are left. */
  #within(sources: ValueSet, work: () => void): void {
    if (this.#left.length === 0) {
      try {
        work();
        return;
      } catch (error) {
        if (!(error instanceof CompileTooLarge)) throw error;
      }
    }
    this.#left.push(sources);
  }

  /** Returns the sources for which a group or default changed, and all groups to which they belong. */
  #changedSources(): { readonly axis: Axis; readonly groups: readonly SourceGroup[]; readonly within: ValueSet } {
    const everything: Span = this.#space.spanOf({ address: 0, length: 0 });
    const asked = this.options.question?.sources ?? [everything];
    const groups = SIDES.flatMap((side) => this.#groupsWithin(side, asked));
    const changed = groups.filter(({ side, group }) => this.#alignment.pairs[side][group]?.isSame !== true);
    const isEverywhere = this.#alignment.changedDefault > 0 || changed.some(({ hasSelectors }) => hasSelectors);
    const changes = isEverywhere ? [everything] : mergedSpans(changed.flatMap(({ spans }) => spans));
    const within = intersection(asked, changes);
    const near = groups.filter(({ spans, hasSelectors }) => hasSelectors || overlap(spans, within));
    const deciding = this.#thatMatter(near, changed).map((group) => ({
      ...group,
      spans: intersection(group.spans, within),
    }));
    const axis = new Axis(this.#space, [...deciding.flatMap(({ spans }) => spans), ...within]);
    const pieces = within.flatMap(({ start, end }) => [axis.indexOf(start), axis.indexOf(end)]);
    return { axis, groups: deciding, within: pieces };
  }

  /**
   * Leaves out the groups that have no default, and no rule that matches a flow of the question or of a
   * changed rule. A comparison of DNS lookups needs all groups.
   */
  #thatMatter(groups: readonly SourceGroup[], changed: readonly SourceGroup[]): readonly SourceGroup[] {
    const isAsked = this.options.question !== undefined;
    if (!isAsked && this.#alignment.changedDefault > 0) return groups;
    if (!isAsked && changed.some((group) => this.#relevant.changedRulesOf(group).some(takesPartInLookups)))
      return groups;
    return this.#relevant.thatMatter(groups, changed);
  }

  /**
   * Returns the groups of one side that decide something, and to which one of the asked sources can belong.
   */
  #groupsWithin(side: Side, asked: readonly Span[]): SourceGroup[] {
    const found: SourceGroup[] = [];
    const { groups } = this.policies[side];
    for (let group = 0; group < groups.length; group++) {
      const { sources, selectors, rules, defaultAction } = itemAt(groups, group);
      if (rules.length === 0 && defaultAction === undefined) continue;
      const spans = spansOf(sources, this.#space);
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
      for (const at of part.rules)
        for (const prefix of itemAt(rules, at).destinations) yield this.#space.spanOf(prefix);
    }
    yield* this.options.question?.destinations ?? [];
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
        diagrams.everywhere(entriesOfDefault({ action: defaultAction, mode }, tag, conditional, this.#conditions)),
      );
    }
    const node = diagrams.sequence(nodes);
    this.#nodes.set(part, node);
    return node;
  }

  #ruleNode(rule: Rule, { side, code, pair }: Member, diagrams: RuleDiagrams): number {
    const tag = this.#alignment.tagOfRule(side, groupOf(code), rule, pair);
    const { selectors } = itemAt(this.policies[side].groups, groupOf(code));
    const entries = entriesOfRule(rule, tag, isConditional(code) ? selectors : null, this.#conditions);
    return diagrams.within(this.#relevant.shapeOf(rule), entries);
  }

  #lookups(planned: readonly Planned[], axis: Axis): LookupRegion[] {
    const budget = new Budget(this.#limits);
    const lookups = new LookupComparison(
      this.policies,
      this.#alignment,
      this.#relevant,
      this.#lookupConditions,
      budget,
    );
    for (const plan of planned) if (lookups.isChanged(plan)) this.#within(plan.sources, () => lookups.compare(plan));
    return lookups.changes.map(({ sources, changes }) => ({ sources: this.#spans(union(sources), axis), changes }));
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

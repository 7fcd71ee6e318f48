import { type AddressSpace, type Span, spansOf } from '#analysis/engine/address-space.js';
import { type Outcome, outcomeFor } from '#analysis/engine/decision-lists.js';
import { takesPartInLookups } from '#analysis/engine/lookup-comparison.js';
import type { SourceGroup } from '#analysis/engine/populations.js';
import { type Decides, forLookups } from '#analysis/engine/rule-entries.js';
import { type Shape, shapeOf, Window } from '#analysis/engine/rule-shape.js';
import { f64At, itemAt, u32At } from '#arrays/read.js';
import type { Action, Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { RuleSearch } from './rule-search.js';

/** The rules of at most this many groups are searched group by group. */
const FEW = 256;

/**
 * The rules of a policy for the flows of one family, by their numbers: their places in the order of
 * evaluation, which are equal in each family. The default of a group has a number too, above those of all
 * rules, and is a rule that matches every flow.
 */
export class PolicyRules {
  /** The groups that lint proposes to remove. */
  removedGroups: ReadonlySet<number> = new Set();
  readonly #firsts: Uint32Array;
  readonly #shapes = new Map<Rule, Shape>();
  readonly #defaults = new Map<number, Rule>();
  readonly #sources: readonly (readonly Span[])[];
  /** The bounds of the sources of each group, see `AddressSpace.approximate`. */
  readonly #low: Float64Array;
  readonly #high: Float64Array;
  #rules: readonly Rule[] | undefined;
  #inLookups: readonly number[] | undefined;
  #search: RuleSearch | undefined;

  constructor(
    readonly policy: Policy,
    readonly space: AddressSpace,
  ) {
    const { groups } = policy;
    this.#firsts = new Uint32Array(groups.length + 1);
    this.#low = new Float64Array(groups.length);
    this.#high = new Float64Array(groups.length);
    this.#sources = groups.map(({ sources }) => spansOf(sources, space));
    for (const [at, { rules }] of groups.entries()) {
      this.#firsts[at + 1] = u32At(this.#firsts, at) + rules.length;
      const spans = itemAt(this.#sources, at);
      this.#low[at] = spans[0] === undefined ? Number.POSITIVE_INFINITY : space.approximate(spans[0].start);
      this.#high[at] = spans.length === 0 ? -1 : space.approximate(itemAt(spans, spans.length - 1).end);
    }
  }

  /** Returns the numbers of the rules of these groups that can decide DNS lookups, ascending. */
  inLookups(groups: ReadonlySet<number>): readonly number[] {
    if (groups.size > FEW) {
      this.#inLookups ??= this.rules.flatMap((rule, number) => (takesPartInLookups(rule) ? [number] : []));
      return this.#inLookups.filter((number) => groups.has(this.groupOf(number)));
    }
    return ascending(groups).flatMap((group) =>
      this.groupAt(group).rules.flatMap((rule, at) => (takesPartInLookups(rule) ? [this.numberAt(group, at)] : [])),
    );
  }

  /** All rules, in the order of evaluation. */
  get rules(): readonly Rule[] {
    this.#rules ??= this.policy.groups.flatMap(({ rules }) => rules);
    return this.#rules;
  }

  groupAt(index: number): Group {
    return itemAt(this.policy.groups, index);
  }

  /** Returns the numbers of the rules of a group. */
  numbersOf(group: number): number[] {
    const first = u32At(this.#firsts, group);
    return Array.from({ length: this.groupAt(group).rules.length }, (_, at) => first + at);
  }

  /** Returns the number of the rule at an index of a group. */
  numberAt(group: number, index: number): number {
    return u32At(this.#firsts, group) + index;
  }

  defaultOf(group: number): number {
    return this.#count + group;
  }

  isDefault(number: number): boolean {
    return number >= this.#count;
  }

  ruleOf(number: number): Rule {
    if (this.isDefault(number)) return this.#ruleOfDefault(number - this.#count);
    const group = this.groupOf(number);
    return itemAt(this.groupAt(group).rules, number - u32At(this.#firsts, group));
  }

  /**
   * Returns the outcome for flows that reach the end of a population, see `GroupPopulation`: `outside`, which
   * is that of no rule, if the default at the end goes with a group that lint proposes to remove.
   */
  outcomeAtEnd(end: number | null): Outcome {
    return this.#outcomeAtEnd(end, ({ action, mode }) => outcomeFor(action, mode));
  }

  /** Returns the outcome for DNS lookups that no rule of a population decides, like `outcomeAtEnd`. */
  lookupOutcomeAtEnd(end: number | null): Outcome {
    return this.#outcomeAtEnd(end, (decided) => {
      const { action, mode } = forLookups(decided);
      return outcomeFor(action, mode);
    });
  }

  #outcomeAtEnd(end: number | null, outcomeOf: (decided: Decides) => Outcome): Outcome {
    if (end === null) return outcomeOf(this.policy.default);
    const { defaultAction, mode } = this.groupAt(end);
    if (defaultAction === undefined)
      throw new RangeError('decide a flow by the default of a group: the group has no default action');
    return this.removedGroups.has(end) ? 'outside' : outcomeOf({ action: defaultAction, mode });
  }

  groupOf(number: number): number {
    if (this.isDefault(number)) return number - this.#count;
    let low = 0;
    let high = this.policy.groups.length;
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if (u32At(this.#firsts, middle) <= number) low = middle;
      else high = middle;
    }
    return low;
  }

  get #count(): number {
    return u32At(this.#firsts, this.policy.groups.length);
  }

  shapeOf(number: number): Shape {
    return this.#shapeOf(this.ruleOf(number));
  }

  /** Returns the numbers of the rules of these groups that match a flow of a shape, ascending. */
  touching(shape: Shape, groups: ReadonlySet<number>): number[] {
    const window = new Window([shape], (rule) => this.#shapeOf(rule), this.space);
    if (groups.size > FEW && shape.destinations !== null) {
      this.#search ??= new RuleSearch({ rules: this.rules, groupOf: (number) => this.groupOf(number) });
      return this.#search.touching(window, groups);
    }
    return ascending(groups).flatMap((group) =>
      window.rulesInside(this.groupAt(group).rules).map((at) => this.numberAt(group, at)),
    );
  }

  sourcesOf(index: number): SourceGroup {
    return {
      side: 0,
      group: index,
      spans: itemAt(this.#sources, index),
      hasSelectors: this.groupAt(index).selectors.length > 0,
    };
  }

  /**
   * Returns the groups that decide something, and to which one of the sources may belong. `last`: the last
   * group that is looked at.
   */
  groupsNear(spans: readonly Span[], last = this.policy.groups.length - 1): SourceGroup[] {
    const found: SourceGroup[] = [];
    const low = spans[0] === undefined ? Number.POSITIVE_INFINITY : this.space.approximate(spans[0].start);
    const high = spans.length === 0 ? -1 : this.space.approximate(itemAt(spans, spans.length - 1).end);
    for (let at = 0; at <= last; at++) {
      const { selectors, rules, defaultAction } = this.groupAt(at);
      if (rules.length === 0 && defaultAction === undefined) continue;
      const isNear = f64At(this.#low, at) <= high && f64At(this.#high, at) >= low;
      if (isNear || selectors.length > 0) found.push(this.sourcesOf(at));
    }
    return found;
  }

  #shapeOf(rule: Rule): Shape {
    let shape = this.#shapes.get(rule);
    if (shape === undefined) {
      shape = shapeOf(rule, this.space);
      this.#shapes.set(rule, shape);
    }
    return shape;
  }

  #ruleOfDefault(group: number): Rule {
    let rule = this.#defaults.get(group);
    if (rule === undefined) {
      const { defaultAction, mode } = this.groupAt(group);
      rule = ruleForAll(defaultAction ?? 'deny', mode);
      this.#defaults.set(group, rule);
    }
    return rule;
  }
}

const ascending = (groups: ReadonlySet<number>): number[] => [...groups].sort((left, right) => left - right);

function ruleForAll(action: Action, mode: Rule['mode']): Rule {
  return {
    ...{ id: '', pointer: '', action, mode, destinations: [], hostname: undefined, protocol: 'any', tls: undefined },
    ...{ sourcePorts: [], destinationPorts: [], icmpTypes: [], icmpCodes: [] },
  };
}

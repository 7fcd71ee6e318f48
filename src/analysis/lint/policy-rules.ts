import { type AddressSpace, type Span, spansOf } from '#analysis/engine/address-space.js';
import { takesPartInLookups } from '#analysis/engine/lookup-comparison.js';
import type { SourceGroup } from '#analysis/engine/populations.js';
import type { Decides } from '#analysis/engine/rule-entries.js';
import { type Shape, shapeOf, Window } from '#analysis/engine/rule-shape.js';
import { f64At, itemAt, u32At } from '#arrays/read.js';
import type { Action, Group, Policy, Rule } from '#contracts/policy/policy-model.js';

/**
 * The rules of a policy, by their numbers: their places in the order of evaluation. The default of a group
 * has a number too, above those of all rules, and is a rule that matches every flow.
 */
export class PolicyRules {
  readonly rules: readonly Rule[];
  /** The numbers of the rules that can decide DNS lookups. */
  readonly inLookups: readonly number[];
  /** The rules with destinations, which have an index of destinations, and their numbers. */
  readonly #withDestination: readonly Rule[];
  readonly #numbers: readonly number[];
  /** The other rules of each group, and their numbers. */
  readonly #withoutDestination = new Map<number, { readonly rules: Rule[]; readonly numbers: number[] }>();
  readonly #firsts: Uint32Array;
  readonly #groups: Uint32Array;
  readonly #shapes = new Map<Rule, Shape>();
  readonly #defaults = new Map<number, Rule>();
  readonly #sources: readonly (readonly Span[])[];
  /** The bounds of the sources of each group, see `AddressSpace.approximate`. */
  readonly #low: Float64Array;
  readonly #high: Float64Array;

  constructor(
    readonly policy: Policy,
    readonly space: AddressSpace,
  ) {
    const { groups } = policy;
    this.rules = groups.length === 1 ? itemAt(groups, 0).rules : groups.flatMap(({ rules }) => rules);
    this.#firsts = new Uint32Array(groups.length + 1);
    this.#groups = new Uint32Array(this.rules.length);
    this.#low = new Float64Array(groups.length);
    this.#high = new Float64Array(groups.length);
    this.#sources = groups.map(({ sources }) => spansOf(sources, space));
    for (const [at, { rules }] of groups.entries()) {
      const first = u32At(this.#firsts, at);
      this.#groups.fill(at, first, first + rules.length);
      this.#firsts[at + 1] = first + rules.length;
      const spans = itemAt(this.#sources, at);
      this.#low[at] = spans[0] === undefined ? Number.POSITIVE_INFINITY : space.approximate(spans[0].start);
      this.#high[at] = spans.length === 0 ? -1 : space.approximate(itemAt(spans, spans.length - 1).end);
    }
    const numbers: number[] = [];
    for (const [number, rule] of this.rules.entries()) {
      if (rule.destinations.length > 0) numbers.push(number);
      else {
        const group = u32At(this.#groups, number);
        const others = this.#withoutDestination.get(group) ?? { rules: [], numbers: [] };
        this.#withoutDestination.set(group, others);
        others.rules.push(rule);
        others.numbers.push(number);
      }
    }
    this.#numbers = numbers;
    this.#withDestination = numbers.map((number) => itemAt(this.rules, number));
    this.inLookups = [...this.rules.keys()].filter((at) => takesPartInLookups(itemAt(this.rules, at)));
  }

  groupAt(index: number): Group {
    return itemAt(this.policy.groups, index);
  }

  /** Returns the numbers of the rules of a group. */
  numbersOf(group: number): number[] {
    const first = u32At(this.#firsts, group);
    return Array.from({ length: this.groupAt(group).rules.length }, (_, at) => first + at);
  }

  defaultOf(group: number): number {
    return this.rules.length + group;
  }

  isDefault(number: number): boolean {
    return number >= this.rules.length;
  }

  ruleOf(number: number): Rule {
    return this.isDefault(number) ? this.#ruleOfDefault(number - this.rules.length) : itemAt(this.rules, number);
  }

  /** Returns what decides the flows that reach the end of a population, see `GroupPopulation`. */
  defaultAtEnd(end: number | null): Decides {
    if (end === null) return this.policy.default;
    const { defaultAction, mode } = this.groupAt(end);
    if (defaultAction === undefined) throw new RangeError('end the rules of a population: the group has no default');
    return { action: defaultAction, mode };
  }

  groupOf(number: number): number {
    return this.isDefault(number) ? number - this.rules.length : u32At(this.#groups, number);
  }

  shapeOf(number: number): Shape {
    return this.#shapeOf(this.ruleOf(number));
  }

  /** Returns the numbers of the rules of these groups that match a flow of a shape, ascending. */
  touching(shape: Shape, groups: ReadonlySet<number>): number[] {
    const window = new Window([shape], (rule) => this.#shapeOf(rule), this.space);
    if (shape.destinations === null)
      return [...groups]
        .sort((left, right) => left - right)
        .flatMap((group) => {
          const first = u32At(this.#firsts, group);
          return window.rulesInside(this.groupAt(group).rules).map((at) => first + at);
        });
    const found = window
      .rulesInside(this.#withDestination, (at) => groups.has(this.groupOf(itemAt(this.#numbers, at))))
      .map((at) => itemAt(this.#numbers, at));
    const isFew = groups.size < this.#withoutDestination.size;
    for (const group of isFew ? groups : this.#withoutDestination.keys()) {
      const others = groups.has(group) ? this.#withoutDestination.get(group) : undefined;
      if (others === undefined) continue;
      for (const at of window.rulesInside(others.rules)) found.push(itemAt(others.numbers, at));
    }
    return found.sort((left, right) => left - right);
  }

  sourcesOf(index: number): SourceGroup {
    return {
      side: 0,
      group: index,
      spans: itemAt(this.#sources, index),
      hasSelectors: this.groupAt(index).selectors.length > 0,
    };
  }

  /** Returns the groups that decide something, and to which one of the sources may belong. */
  groupsNear(spans: readonly Span[]): SourceGroup[] {
    const [first, last] = [spans[0], spans.at(-1)];
    const found: SourceGroup[] = [];
    if (first === undefined || last === undefined) return found;
    const low = this.space.approximate(first.start);
    const high = this.space.approximate(last.end);
    for (let at = 0; at < this.policy.groups.length; at++) {
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

function ruleForAll(action: Action, mode: Rule['mode']): Rule {
  return {
    ...{ id: '', pointer: '', action, mode, destinations: [], hostname: undefined, protocol: 'any', tls: undefined },
    ...{ sourcePorts: [], destinationPorts: [], icmpTypes: [], icmpCodes: [] },
  };
}

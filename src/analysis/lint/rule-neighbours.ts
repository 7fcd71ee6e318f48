import type { Point, Span } from '#analysis/engine/address-space.js';
import { canMatchOneName } from '#analysis/engine/conditions.js';
import { type Outcome, outcomeFor } from '#analysis/engine/decision-lists.js';
import { takesPartInLookups } from '#analysis/engine/lookup-comparison.js';
import { groupOf, isConditional } from '#analysis/engine/populations.js';
import { hasFlows, type Shape } from '#analysis/engine/rule-shape.js';
import { itemAt } from '#arrays/read.js';
import type { Range, Rule } from '#contracts/policy/policy-model.js';
import type { Budget } from '#policy/model/budget.js';
import type { Arrangement } from './arrangement.js';
import type { GroupPopulation, GroupPopulations } from './group-populations.js';
import { type Item, NeighbourFlows } from './neighbour-flows.js';
import { NeighbourLookups } from './neighbour-lookups.js';
import type { PolicyRules } from './policy-rules.js';

/** The number of rules that are compared with a rule in the time of one step. */
const RULES_OF_A_STEP = 4;

/** The numbers of rules, grouped by the index of their source group. */
type ByGroup = ReadonlyMap<number, readonly number[]>;

/**
 * A rule together with all rules that match one of its flows of one family. These rules and the defaults
 * decide all these flows.
 */
export class RuleNeighbours {
  readonly #rule: Rule;
  readonly #shape: Shape;
  #touching: ByGroup | undefined;
  #distinct: readonly GroupPopulation[] | undefined;
  #samples: readonly SampleFlow[] | undefined;
  #flows: NeighbourFlows | undefined;

  constructor(
    private readonly rules: PolicyRules,
    private readonly populations: GroupPopulations,
    readonly number: number,
    private readonly budget: Budget,
  ) {
    this.#rule = rules.ruleOf(number);
    this.#shape = rules.shapeOf(number);
  }

  /** The numbers of all rules that match a flow of this rule. */
  get touching(): readonly number[] {
    return [...this.#ofFlows().values()].flat();
  }

  /** The numbers of the rules of the same group that match a flow of this rule, ascending. */
  get ofOwnGroup(): readonly number[] {
    return this.#ofFlows().get(this.populations.group) ?? [];
  }

  /** Whether the rule decides a flow or a DNS lookup. */
  isReached(arrangement: Arrangement): boolean {
    if (this.populations.reaching.length === 0) return false;
    return (
      (this.#hasFlows &&
        (this.#sampleFlows().some((flow) => this.#isFirst(flow, arrangement)) ||
          this.#reaching().some((population) => this.#decidesFlow(population, arrangement)))) ||
      this.#ofLookups().some(({ population, lookups, near }) => {
        const items = this.#items(population, near, arrangement);
        return lookups.isDecided(this.#itemIn(population), this.#inFront(items, this.number, arrangement));
      })
    );
  }

  /**
   * Whether all flows and DNS lookups are decided alike in two arrangements that differ only in this rule.
   */
  isAlike(one: Arrangement, other: Arrangement): boolean {
    return (
      (!this.#hasFlows || this.#reaching().every((population) => this.#areFlowsAlike(population, one, other))) &&
      this.#ofLookups().every(({ population, lookups, near }) => {
        const [left, right] = [one, other].map((arrangement) => this.#items(population, near, arrangement));
        return !lookups.differ(left ?? [], right ?? [], [this.number], population.end);
      })
    );
  }

  /**
   * Whether this rule and an earlier rule of its group match a flow that no rule in front of both decides,
   * and that the two decide differently.
   */
  isInConflictWith(earlier: number, arrangement: Arrangement): boolean {
    return this.#reaching().some((population) => {
      const items = this.#items(population, this.#ofFlows(), arrangement);
      const front = this.#inFront(items, earlier, arrangement);
      const pair = [{ ...this.#itemIn(population), number: earlier }, this.#itemIn(population)];
      return this.#neighbourFlows().differ(
        [...front, ...pair],
        [...front, ...pair.reverse()],
        [this.number, earlier],
        population.end,
      );
    });
  }

  /**
   * Returns the numbers of the rules and defaults that decide flows of the rule: those in front of it, or
   * with `isWhole` all. Null in the result is the default of the policy.
   */
  deciders(arrangement: Arrangement, isWhole: boolean): Set<number | null> {
    const found = new Set<number | null>();
    if (!this.#hasFlows) return found;
    const add = (items: readonly Item[], end: number | null | undefined): void => {
      for (const decider of this.#neighbourFlows().deciders(items, end)) found.add(decider);
    };
    for (const population of this.#reaching()) {
      const items = this.#items(population, this.#ofFlows(), arrangement);
      if (isWhole) add(items, population.end);
      else add(this.#inFront(items, this.number, arrangement), undefined);
    }
    for (const population of this.populations.hidden)
      add(this.#items(population, this.#ofFlows(), arrangement), population.end);
    return found;
  }

  /** Whether the rule matches a flow of this family. */
  get #hasFlows(): boolean {
    return hasFlows(this.#shape);
  }

  /** The rules that match a flow of the rule. */
  #ofFlows(): ByGroup {
    this.#touching ??= this.#byGroup(this.rules.touching(this.#shape, this.populations.groups));
    return this.#touching;
  }

  /** The populations for which different rules match a flow of the rule. */
  #reaching(): readonly GroupPopulation[] {
    this.#distinct ??= this.populations.distinct(this.#ofFlows().keys());
    return this.#distinct;
  }

  /**
   * Whether no rule in front matches a flow of the rule, for no population. Faster than to find all rules.
   */
  #isFirst({ destination, key, sourcePort }: SampleFlow, arrangement: Arrangement): boolean {
    const { groups, group, hasConditionalDefaults } = this.populations;
    if (hasConditionalDefaults) return false;
    const shape = {
      destinations: [{ start: destination, end: this.rules.space.plus(destination, 1) }],
      keys: [{ low: key, high: key }],
      sourcePorts: [{ low: sourcePort, high: sourcePort }],
    };
    const place = arrangement.placeOf(this.number);
    const touching = this.rules.touching(shape, groups);
    this.budget.steps(1 + touching.length / RULES_OF_A_STEP);
    return touching.every((number) => {
      if (number === this.number || arrangement.removed.has(number)) return true;
      const own = this.rules.groupOf(number);
      return own === group ? arrangement.placeOf(number) > place : own > group;
    });
  }

  #decidesFlow(population: GroupPopulation, arrangement: Arrangement): boolean {
    const front = this.#inFront(this.#items(population, this.#ofFlows(), arrangement), this.number, arrangement);
    if (this.#sampleFlows().some((flow) => !front.some(({ number }) => this.#matches(number, flow)))) return true;
    return this.#neighbourFlows().isDecided(this.#itemIn(population), front);
  }

  #areFlowsAlike(population: GroupPopulation, one: Arrangement, other: Arrangement): boolean {
    const items = this.#items(population, this.#ofFlows(), one);
    const others = this.#items(population, this.#ofFlows(), other);
    if (other.removed.has(this.number) && this.#isSampleChanged(population, items, others, one)) return false;
    return !this.#neighbourFlows().differ(items, others, [this.number], population.end);
  }

  /**
   * Whether a sample flow that no rule in front matches is decided differently without the rule, under each
   * condition. This takes much less time than to build diagrams, and is sufficient for most rules.
   */
  #isSampleChanged(
    { end }: GroupPopulation,
    items: readonly Item[],
    without: readonly Item[],
    arrangement: Arrangement,
  ): boolean {
    const front = this.#inFront(items, this.number, arrangement);
    const own = outcomeFor(this.#rule.action, this.#rule.mode);
    const atEnd = this.rules.outcomeAtEnd(end);
    const behind = without.slice(front.length);
    // Only flows that a rule behind or the default decides otherwise can show a change.
    const others = behind.filter(({ number }) => this.#outcomeOf(number) !== own);
    const samples = [
      ...(atEnd === own ? [] : this.#sampleFlows()),
      ...others.flatMap(({ number }) => commonFlow(this.#shape, this.rules.shapeOf(number))),
    ];
    return samples.some((flow) => {
      if (front.some(({ number }) => this.#matches(number, flow))) return false;
      const next = behind.find(({ number }) => this.#matches(number, flow));
      if (next === undefined) return own !== atEnd;
      const { hostname, tls } = this.rules.ruleOf(next.number);
      const isCertain = hostname === undefined && tls === undefined && !isConditional(next.code);
      return isCertain && own !== this.#outcomeOf(next.number);
    });
  }

  #outcomeOf(number: number): Outcome {
    const { action, mode } = this.rules.ruleOf(number);
    return outcomeFor(action, mode);
  }

  /**
   * Returns rules as a population sees them, in the order of evaluation, with the defaults that can apply.
   */
  #items({ codes }: GroupPopulation, numbers: ByGroup, arrangement: Arrangement): Item[] {
    const items: Item[] = [];
    for (const code of codes) {
      const group = groupOf(code);
      const own = (numbers.get(group) ?? []).filter((number) => !arrangement.removed.has(number));
      if (group === this.populations.group)
        own.sort((left, right) => arrangement.placeOf(left) - arrangement.placeOf(right));
      for (const number of own) items.push({ number, code });
      const { defaultAction } = this.rules.groupAt(group);
      if (isConditional(code) && defaultAction !== undefined) items.push({ number: this.rules.defaultOf(group), code });
    }
    return items;
  }

  /** Returns the items that are evaluated before a rule or the default of the group. */
  #inFront(items: readonly Item[], of: number, arrangement: Arrangement): readonly Item[] {
    const { group } = this.populations;
    const place = arrangement.placeOf(of);
    return items.filter(({ number, code }) => {
      const own = groupOf(code);
      return own === group ? arrangement.placeOf(number) < place : own < group;
    });
  }

  #itemIn({ codes }: GroupPopulation): Item {
    const { group } = this.populations;
    const code = codes.find((own) => groupOf(own) === group);
    if (code === undefined) throw new RangeError('a population of sources without the group whose rules are checked');
    return { number: this.number, code };
  }

  #matches(number: number, { destination, key, sourcePort }: SampleFlow): boolean {
    const { destinations, keys, sourcePorts } = this.rules.shapeOf(number);
    return (
      (destinations === null || destinations.some(({ start, end }) => start <= destination && destination < end)) &&
      contains(keys, key) &&
      (sourcePorts === null || contains(sourcePorts, sourcePort))
    );
  }

  #sampleFlows(): readonly SampleFlow[] {
    this.#samples ??= samplesOf(this.#shape, this.rules.space.spanOf({ address: 0, length: 0 }));
    return this.#samples;
  }

  #neighbourFlows(): NeighbourFlows {
    this.#flows ??= new NeighbourFlows(this.rules, this.#shape, this.touching, this.budget);
    return this.#flows;
  }

  /**
   * Returns the populations for which the rule can decide lookups, with the rules that can decide the same.
   */
  #ofLookups(): {
    readonly population: GroupPopulation;
    readonly lookups: NeighbourLookups;
    readonly near: ByGroup;
  }[] {
    if (!takesPartInLookups(this.#rule) || this.populations.reaching.length === 0) return [];
    const { hostname } = this.#rule;
    const near = this.#byGroup(
      this.rules.inLookups(this.populations.groups).filter((number) => {
        const other = this.rules.ruleOf(number).hostname;
        return hostname === undefined || other === undefined || canMatchOneName(hostname, other);
      }),
    );
    const lookups = new NeighbourLookups(this.rules, this.budget);
    return this.populations.distinct(near.keys()).map((population) => ({ population, lookups, near }));
  }

  #byGroup(numbers: readonly number[]): ByGroup {
    this.budget.steps(1 + numbers.length / RULES_OF_A_STEP);
    const found = new Map<number, number[]>();
    for (const number of numbers) {
      const group = this.rules.groupOf(number);
      const own = found.get(group);
      if (own === undefined) found.set(group, [number]);
      else own.push(number);
    }
    return found;
  }
}

type SampleFlow = { readonly destination: Point; readonly key: number; readonly sourcePort: number };

const contains = (ranges: readonly Range[], value: number): boolean =>
  ranges.some(({ low, high }) => low <= value && value <= high);

/** Returns some flows of a shape at its bounds. `everywhere`: all addresses. */
function samplesOf({ destinations, keys, sourcePorts }: Shape, everywhere: Span): readonly SampleFlow[] {
  const [first, last] = destinations === null ? [everywhere, everywhere] : [destinations[0], destinations.at(-1)];
  const [low, high] = [keys[0], keys.at(-1)];
  if (first === undefined || last === undefined || low === undefined || high === undefined) return [];
  const sourcePort = sourcePorts === null ? 0 : itemAt(sourcePorts, 0).low;
  return [
    { destination: first.start, key: low.low, sourcePort },
    { destination: last.start, key: high.high, sourcePort },
    { destination: last.start, key: low.low, sourcePort },
  ];
}

/** Returns a flow that is in both shapes; none if they have no flow in common, or none at a bound of both. */
function commonFlow(one: Shape, other: Shape): SampleFlow[] {
  const spans = [...(one.destinations ?? []), ...(other.destinations ?? [])].map(({ start }) => start);
  const isInside = ({ destinations }: Shape, point: Point) =>
    destinations === null || destinations.some(({ start, end }) => start <= point && point < end);
  const destination = spans.find((point) => isInside(one, point) && isInside(other, point));
  const key = commonValue(one.keys, other.keys);
  const [own, others] = [one.sourcePorts ?? other.sourcePorts, other.sourcePorts ?? one.sourcePorts];
  const sourcePort = own === null || others === null ? 0 : commonValue(own, others);
  if (destination === undefined || key === undefined || sourcePort === undefined) return [];
  return [{ destination, key, sourcePort }];
}

const commonValue = (one: readonly Range[], other: readonly Range[]): number | undefined =>
  [...one, ...other].map(({ low }) => low).find((value) => contains(one, value) && contains(other, value));

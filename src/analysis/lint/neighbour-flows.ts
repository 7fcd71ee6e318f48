import { Axis } from '#analysis/engine/axis.js';
import { ALWAYS, Conditions } from '#analysis/engine/conditions.js';
import type { Entry } from '#analysis/engine/decision-lists.js';
import { groupOf, isConditional, type Scoped } from '#analysis/engine/populations.js';
import { RuleDiagrams } from '#analysis/engine/rule-diagrams.js';
import { entriesOfRule } from '#analysis/engine/rule-entries.js';
import type { Shape } from '#analysis/engine/rule-shape.js';
import { itemAt } from '#arrays/read.js';
import type { Budget } from '#policy/model/budget.js';
import type { PolicyRules } from './policy-rules.js';

/** A rule, by its number, with the code of its group for the sources in question (see `Scoped`). */
export type Item = { readonly number: number; readonly code: Scoped };

/** The tag for rules that do not have the same position in both compared sequences. */
const CHANGED = 1;

/**
 * The decision diagrams of rules, limited to the flows that one rule matches (its shape). A diagram is a
 * number.
 */
export class NeighbourFlows {
  readonly #conditions = new Conditions();
  readonly #diagrams: RuleDiagrams;
  readonly #mask: number;

  /** `numbers`: the numbers of the rules that match at least one of these flows. */
  constructor(
    private readonly rules: PolicyRules,
    shape: Shape,
    numbers: readonly number[],
    budget: Budget,
  ) {
    const spans = numbers.flatMap((number) => rules.shapeOf(number).destinations ?? []);
    const axis = new Axis(rules.space, [...spans, ...(shape.destinations ?? [])]);
    this.#diagrams = new RuleDiagrams(axis, this.#conditions, budget);
    this.#mask = this.#diagrams.mask(shape);
  }

  /**
   * Returns whether two sequences of rules decide a flow differently. They have the same rules in the same
   * order, except for the rules in `changed`. `end`: see `GroupPopulation`.
   */
  differ(one: readonly Item[], other: readonly Item[], changed: readonly number[], end: number | null): boolean {
    const [left, right] = [one, other].map((items) => {
      const tagOf = ({ number }: Item) => (changed.includes(number) ? CHANGED : 0);
      return this.#orElse(this.#sequence(items, tagOf), this.#end(end, 0));
    }) as [number, number];
    return this.#diagrams.differences(left, right).length > 0;
  }

  /** Returns whether a rule decides a flow that none of the earlier rules `front` decides. */
  isDecided(item: Item, front: readonly Item[]): boolean {
    const before = this.#sequence(front, () => 0);
    if (this.#diagrams.isClosed(before)) return false;
    // Use the outcome `outside`, which no other rule has. So each flow that the rule decides appears as a
    // difference.
    const entries = this.#entries(item, CHANGED).map((entry): Entry => ({ ...entry, outcome: 'outside' }));
    const marked = this.#diagrams.within(this.rules.shapeOf(item.number), entries);
    const rest = this.#diagrams.everywhere([{ condition: ALWAYS, outcome: 'allow', tag: 0 }]);
    const [left, right] = [this.#orElse(before, this.#orElse(marked, rest)), this.#orElse(before, rest)];
    return this.#diagrams.differences(left, right).length > 0;
  }

  /**
   * Returns the numbers of the rules that decide at least one of the flows. `end`: the group whose default
   * decides the remaining flows; null for the default of the policy; undefined if nothing decides them. In
   * the result, null stands for the default of the policy.
   */
  deciders(items: readonly Item[], end: number | null | undefined): Set<number | null> {
    const places = new Map(items.map((item, at) => [item, at]));
    const tagged = this.#sequence(items, (item) => (places.get(item) ?? 0) + 1);
    const decided = end === undefined ? tagged : this.#orElse(tagged, this.#end(end, items.length + 1));
    const outside = this.#diagrams.everywhere([{ condition: ALWAYS, outcome: 'outside', tag: 0 }]);
    const found = new Set<number | null>();
    for (const piece of this.#diagrams.differences(decided, this.#orElse(this.#mask, outside)))
      for (const { from } of this.#diagrams.flowsOf(piece).changes) {
        if (from.tag <= items.length) found.add(itemAt(items, from.tag - 1).number);
        else found.add(end == null ? null : this.rules.defaultOf(end));
      }
    return found;
  }

  #sequence(items: readonly Item[], tagOf: (item: Item) => number): number {
    let diagram = this.#mask;
    for (const item of items) {
      if (this.#diagrams.isClosed(diagram)) break;
      const entries = this.#entries(item, tagOf(item));
      diagram = this.#orElse(diagram, this.#diagrams.within(this.rules.shapeOf(item.number), entries));
    }
    return diagram;
  }

  #orElse(first: number, second: number): number {
    return this.#diagrams.orElse(first, second);
  }

  #end(end: number | null, tag: number): number {
    return this.#diagrams.everywhere([{ condition: ALWAYS, outcome: this.rules.outcomeAtEnd(end), tag }]);
  }

  #entries({ number, code }: Item, tag: number): Entry[] {
    const { selectors } = this.rules.groupAt(groupOf(code));
    return entriesOfRule(this.rules.ruleOf(number), tag, isConditional(code) ? selectors : null, this.#conditions);
  }
}

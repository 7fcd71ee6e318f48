import type { Window } from '#analysis/engine/rule-shape.js';
import { itemAt } from '#arrays/read.js';
import type { Rule } from '#contracts/policy/policy-model.js';

/** A search in the rules of all groups by destination, with one index for all groups. */
export class RuleSearch {
  readonly #withDestination: readonly Rule[];
  readonly #numbers: readonly number[];
  /** For each group, the rules without a destination, and their numbers. */
  readonly #withoutDestination = new Map<number, { readonly rules: Rule[]; readonly numbers: number[] }>();

  constructor(private readonly all: { readonly rules: readonly Rule[]; readonly groupOf: (number: number) => number }) {
    const numbers: number[] = [];
    for (const [number, rule] of all.rules.entries()) {
      if (rule.destinations.length > 0) {
        numbers.push(number);
        continue;
      }
      const group = all.groupOf(number);
      const others = this.#withoutDestination.get(group) ?? { rules: [], numbers: [] };
      this.#withoutDestination.set(group, others);
      others.rules.push(rule);
      others.numbers.push(number);
    }
    this.#numbers = numbers;
    this.#withDestination = numbers.map((number) => itemAt(all.rules, number));
  }

  /**
   * Returns the numbers of those rules of these groups that match at least one flow of a set (window),
   * ascending.
   */
  touching(window: Window, groups: ReadonlySet<number>): number[] {
    const found = window
      .rulesInside(this.#withDestination, (at) => groups.has(this.all.groupOf(itemAt(this.#numbers, at))))
      .map((at) => itemAt(this.#numbers, at));
    for (const [group, { rules, numbers }] of this.#withoutDestination) {
      if (!groups.has(group)) continue;
      for (const at of window.rulesInside(rules)) found.push(itemAt(numbers, at));
    }
    return found.sort((left, right) => left - right);
  }
}

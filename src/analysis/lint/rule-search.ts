import type { Window } from '#analysis/engine/rule-shape.js';
import { itemAt } from '#arrays/read.js';
import type { Rule } from '#contracts/policy/policy-model.js';

/** The rules of all groups in one list, whose index of destinations finds rules of many groups. */
export class RuleSearch {
  readonly #withDestination: readonly Rule[];
  readonly #numbers: readonly number[];
  /** The other rules of each group, and their numbers. */
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

  /** Returns the numbers of the rules of these groups that match a flow of a window, ascending. */
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

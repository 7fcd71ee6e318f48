import { ALWAYS, Conditions } from '#analysis/engine/conditions.js';
import { DecisionLists, type Entry, OPEN } from '#analysis/engine/decision-lists.js';
import { groupOf, isConditional } from '#analysis/engine/populations.js';
import { lookupEntriesOf } from '#analysis/engine/rule-entries.js';
import type { Budget } from '#policy/model/budget.js';
import type { Item } from './neighbour-flows.js';
import type { PolicyRules } from './policy-rules.js';

const CHANGED = 1;

/** The decision lists of rules for DNS lookups (D11). */
export class NeighbourLookups {
  readonly #conditions = new Conditions({ aboutOneName: true });
  readonly #lists: DecisionLists;

  constructor(
    private readonly rules: PolicyRules,
    budget: Budget,
  ) {
    this.#lists = new DecisionLists(this.#conditions, budget);
  }

  /** Returns whether two sequences of rules decide a DNS lookup differently, see `NeighbourFlows.differ`. */
  differ(one: readonly Item[], other: readonly Item[], changed: readonly number[], end: number | null): boolean {
    const [left, right] = [one, other].map((items) => {
      const list = this.#sequence(items, changed);
      return this.#lists.orElse(list, this.#end(end));
    }) as [number, number];
    return this.#lists.differences(left, right).length > 0;
  }

  /** Returns whether a rule decides a DNS lookup that none of the earlier rules `front` decides. */
  isDecided(item: Item, front: readonly Item[]): boolean {
    const before = this.#sequence(front, []);
    const marked = this.#lists.of(
      this.#entries(item, CHANGED).map((entry): Entry => ({ ...entry, outcome: 'outside' })),
    );
    const rest = this.#lists.of([{ condition: ALWAYS, outcome: 'allow', tag: 0 }]);
    const decided = this.#lists.orElse(before, this.#lists.orElse(marked, rest));
    return this.#lists.differences(decided, this.#lists.orElse(before, rest)).length > 0;
  }

  #sequence(items: readonly Item[], changed: readonly number[]): number {
    let list = OPEN;
    for (const item of items) {
      const entries = this.#entries(item, changed.includes(item.number) ? CHANGED : 0);
      list = this.#lists.orElse(list, this.#lists.of(entries));
    }
    return list;
  }

  #end(end: number | null): number {
    return this.#lists.of([{ condition: ALWAYS, outcome: this.rules.lookupOutcomeAtEnd(end), tag: 0 }]);
  }

  #entries({ number, code }: Item, tag: number): Entry[] {
    const { selectors } = this.rules.groupAt(groupOf(code));
    return lookupEntriesOf(this.rules.ruleOf(number), tag, isConditional(code) ? selectors : null, this.#conditions);
  }
}

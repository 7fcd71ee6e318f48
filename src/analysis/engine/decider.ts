import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { type AddressSpace, type Point, type Span, spansOf } from './address-space.js';
import { ALWAYS, type Conditions } from './conditions.js';
import { type Entry, outcomeFor } from './decision-lists.js';
import { entriesOfDefault, entriesOfRule } from './rule-entries.js';
import { shapeOf, Window } from './rule-shape.js';

/** One flow. `key` is its `portMapKey`. `sourcePort` is 0 if the protocol has no ports. */
export type Flow = {
  readonly source: Point;
  readonly destination: Point;
  readonly key: number;
  readonly sourcePort: number;
};

/** The rule or default that decides a flow. `group` is null for the policy default, `rule` for a default. */
export type Decider = {
  readonly group: Group | null;
  readonly rule: Rule | null;
  readonly outcome: Entry['outcome'];
  /** Whether the service plane inspects the flow. */
  readonly inspected: boolean;
};

/** Finds which rule or default of a policy decides a flow for which given conditions hold. */
export class DeciderFinder {
  readonly #sources: readonly { readonly group: Group; readonly spans: readonly Span[] }[];

  constructor(
    private readonly policy: Policy,
    private readonly space: AddressSpace,
    private readonly conditions: Conditions,
  ) {
    this.#sources = policy.groups.map((group) => ({
      group,
      spans: spansOf(group.sources, space),
    }));
  }

  /** `holding`: the atoms that hold; no other atom holds. */
  decide(flow: Flow, holding: ReadonlySet<number>): Decider {
    const { destination, key, sourcePort, source } = flow;
    const shape = {
      destinations: [{ start: destination, end: this.space.plus(destination, 1) }],
      keys: [{ low: key, high: key }],
      sourcePorts: [{ low: sourcePort, high: sourcePort }],
    };
    const window = new Window([shape], (rule) => shapeOf(rule, this.space), this.space);
    let inspected = false;
    const first = (entries: readonly Entry[]): Entry | undefined => {
      inspected ||= entries.some(
        ({ condition }) =>
          this.conditions.isTls(condition) && this.conditions.kernelAtoms(condition).every((atom) => holding.has(atom)),
      );
      return entries.find(({ condition }) => this.conditions.holds(condition, holding));
    };
    for (const { group, spans } of this.#sources) {
      const isStatic = spans.some(({ start, end }) => start <= source && source < end);
      if (!isStatic && group.selectors.length === 0) continue;
      const selectors = isStatic ? null : group.selectors;
      for (const at of window.rulesInside(group.rules)) {
        const rule = group.rules[at];
        if (rule === undefined) continue;
        const found = first(entriesOfRule(rule, 0, selectors, this.conditions));
        if (found !== undefined) return { group, rule, outcome: found.outcome, inspected };
      }
      const { defaultAction, mode } = group;
      if (defaultAction === undefined) continue;
      const found = first(entriesOfDefault({ action: defaultAction, mode }, 0, selectors, this.conditions));
      if (found !== undefined) return { group, rule: null, outcome: found.outcome, inspected };
    }
    const { action, mode } = this.policy.default;
    const entry: Entry = { condition: ALWAYS, outcome: outcomeFor(action, mode), tag: 0 };
    return { group: null, rule: null, outcome: entry.outcome, inspected };
  }
}

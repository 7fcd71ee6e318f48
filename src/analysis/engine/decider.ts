import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { type AddressSpace, type Point, type Span, spansOf } from './address-space.js';
import { ALWAYS, type Atom, type Conditions } from './conditions.js';
import { type Entry, outcomeFor } from './decision-lists.js';
import { entriesOfDefault, entriesOfRule } from './rule-entries.js';
import { shapeOf, Window } from './rule-shape.js';

/**
 * One flow. `key`: its protocol and port as a number (`portMapKey`). `sourcePort` is 0 if the protocol has no
 * ports.
 */
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
  /** Whether the service plane (TLS and HTTP inspection) inspects the flow. */
  readonly inspected: boolean;
};

/** A rule or default that can decide a flow, with the conditions and outcomes of its decision (entries). */
type Step = Pick<Decider, 'group' | 'rule'> & { readonly entries: readonly Entry[] };

/**
 * Finds the rule or default of a policy that decides a flow, given the facts that are true for the flow (such
 * as a granted hostname).
 */
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

  /** Returns the rule or default that decides. `holding`: all facts (atoms) that are true for the flow. */
  decide(flow: Flow, holding: ReadonlySet<number>): Decider {
    let inspected = false;
    for (const { group, rule, entries } of this.#steps(flow)) {
      inspected ||= entries.some(
        ({ condition }) =>
          this.conditions.isTls(condition) && this.conditions.kernelAtoms(condition).every((atom) => holding.has(atom)),
      );
      const found = entries.find(({ condition }) => this.conditions.holds(condition, holding));
      if (found !== undefined) return { group, rule, outcome: found.outcome, inspected };
    }
    throw new Error('decide a flow: neither a rule nor a default decides it');
  }

  /**
   * Returns the rule or default that decides a flow, if the known facts are sufficient. `holds`: whether a
   * fact (atom) is true; undefined if this is not known. Returns null if an unknown fact can decide. Adds the
   * number of examined rules to `work.steps`.
   */
  decideIfKnown(flow: Flow, holds: (atom: Atom) => boolean | undefined, work: { steps: number }): Decider | null {
    // Count the search for the groups of a source as less work, because it is faster than the search in their
    // rules.
    work.steps += this.#sources.length / 8;
    for (const { group, rule, entries } of this.#steps(flow)) {
      work.steps++;
      for (const { condition, outcome } of entries) {
        const facts = this.conditions.describe(condition).map(holds);
        if (facts.includes(false)) continue;
        return facts.includes(undefined) ? null : { group, rule, outcome, inspected: false };
      }
    }
    throw new Error('decide a flow: neither a rule nor a default decides it');
  }

  /** Returns the rules and defaults that match a flow if their conditions hold, in order of evaluation. */
  *#steps({ destination, key, sourcePort, source }: Flow): Generator<Step> {
    const shape = {
      destinations: [{ start: destination, end: this.space.plus(destination, 1) }],
      keys: [{ low: key, high: key }],
      sourcePorts: [{ low: sourcePort, high: sourcePort }],
    };
    const window = new Window([shape], (rule) => shapeOf(rule, this.space), this.space);
    for (const { group, spans } of this.#sources) {
      const isStatic = spans.some(({ start, end }) => start <= source && source < end);
      if (!isStatic && group.selectors.length === 0) continue;
      const selectors = isStatic ? null : group.selectors;
      for (const at of window.rulesInside(group.rules)) {
        const rule = group.rules[at];
        if (rule !== undefined) yield { group, rule, entries: entriesOfRule(rule, 0, selectors, this.conditions) };
      }
      const { defaultAction, mode } = group;
      if (defaultAction === undefined) continue;
      const entries = entriesOfDefault({ action: defaultAction, mode }, 0, selectors, this.conditions);
      yield { group, rule: null, entries };
    }
    const { action, mode } = this.policy.default;
    yield { group: null, rule: null, entries: [{ condition: ALWAYS, outcome: outcomeFor(action, mode), tag: 0 }] };
  }
}

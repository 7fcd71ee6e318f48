import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import type { Budget } from '#policy/model/budget.js';
import type { AddressSpace, Span } from './address-space.js';
import type { Alignment, GroupPair } from './alignment.js';
import type { ValueSet } from './pieces.js';
import { groupOf, isConditional, type Population, scoped } from './populations.js';
import { type Shape, shapeOf, Window } from './rule-shape.js';

/** The number of `portMapKey` values, and the number of source ports. */
export const KEYS = portMapKey(255, 0xffff) + 1;
export const PORTS = 0x1_0000;
/**
 * If a group has more changed rules than this, the rules that match none of their flows are not left out.
 */
const MAX_SHAPES = 1_024;
/** The number of rules that are compared with a window in the time of one step. */
const RULES_OF_A_STEP = 4;

/** The flows of a question. Null or omitted: every value. */
export type Question = Partial<Shape> & { readonly sources?: readonly Span[] | null };

export type Side = 0 | 1;
export const SIDES = [0, 1] as const;

/**
 * A group as a population sees it. `code`: see `Scoped`. `pair` is undefined if the population does not
 * belong to the group of the other side in the same way.
 */
export type Member = {
  readonly number: number;
  readonly side: Side;
  readonly code: number;
  readonly pair: GroupPair | undefined;
};

/** The indexes of the rules of a group that matter. */
export type Part = { readonly member: Member; readonly rules: readonly number[] };

/**
 * The groups and rules to compare for a population. `changed`: the groups with changed rules, sources or
 * defaults.
 */
export type Planned = {
  readonly sources: ValueSet;
  readonly members: readonly [readonly Member[], readonly Member[]];
  readonly changed: readonly Member[];
  readonly parts: readonly [readonly Part[], readonly Part[]];
};

/**
 * Finds the rules that matter for the comparison of a population: those that match a flow of a changed rule.
 */
export class RelevantRules {
  readonly #space: AddressSpace;
  readonly #parts = new Map<string, Part>();
  readonly #shapes = new Map<Rule, Shape>();
  readonly #members = new Map<number, Member>();
  /** For each window, the rules that match at least one of its flows, by the list of rules. */
  readonly #inside = new Map<Window, Map<readonly Rule[], readonly number[]>>();
  readonly #windows = new Map<Member, Window | null>();
  /** The flows of the question; null if the whole policies are compared. */
  readonly #asked: Window | null;

  constructor(
    private readonly policies: readonly [Policy, Policy],
    private readonly alignment: Alignment,
    private readonly budget: Budget,
    { space, question }: { readonly space: AddressSpace; readonly question?: Question },
  ) {
    this.#space = space;
    this.#asked = question === undefined ? null : this.#window([wholeShape(question)]);
  }

  /** Finds the rules that matter for a population. Returns undefined if nothing changed for it. */
  plan({ groups, sources }: Population): Planned | undefined {
    const members = SIDES.map((side) => {
      const others = new Set(groups[side === 0 ? 1 : 0]);
      return groups[side].map((code) => this.#memberOf(side, code, others));
    }) as [Member[], Member[]];
    const changed = members.flat().filter(({ pair }) => pair === undefined || !isAlike(pair));
    if (this.alignment.changedDefault === 0 && changed.length === 0) return undefined;
    const parts = SIDES.map((side) => this.#partsOf(itemAt(members, side), changed)) as [Part[], Part[]];
    return { sources, members, changed, parts };
  }

  /** `others`: the groups of the population on the other side. */
  #memberOf(side: Side, code: number, others: ReadonlySet<number>): Member {
    let pair = this.alignment.pairs[side][groupOf(code)];
    if (pair !== undefined && isConditional(code) && !pair.sameSelectors) pair = undefined;
    if (pair !== undefined && !others.has(scoped(pair.indexes[side === 0 ? 1 : 0], isConditional(code))))
      pair = undefined;
    const number = 4 * code + 2 * side + (pair === undefined ? 0 : 1);
    let member = this.#members.get(number);
    if (member === undefined) {
      member = { number, side, code, pair };
      this.#members.set(number, member);
    }
    return member;
  }

  /**
   * Returns the flows that the changed rules of a group can match; null if they are too many to be told
   * apart.
   */
  #windowOf(member: Member): Window | null {
    const known = this.#windows.get(member);
    if (known !== undefined) return known;
    const { side, pair } = member;
    const { rules, defaultAction } = this.groupOf(member);
    const changed = pair === undefined ? rules : [...pair.changedRules[side].keys()];
    const hasDefault = pair === undefined ? defaultAction !== undefined : pair.changedDefault > 0;
    const window =
      hasDefault || changed.length > MAX_SHAPES ? null : this.#window(changed.map((rule) => this.shapeOf(rule)));
    this.#windows.set(member, window);
    return window;
  }

  #partsOf(members: readonly Member[], changed: readonly Member[]): Part[] {
    const windows = this.#asked !== null ? [this.#asked] : changed.map((member) => this.#windowOf(member));
    const isEverything = this.#asked === null && (this.alignment.changedDefault > 0 || windows.includes(null));
    const ofChanged = isEverything ? 'all' : changed.map(({ number }) => number).join();
    return members.flatMap((member) => {
      const key = `${member.number} ${this.#asked === null ? ofChanged : ''}`;
      let part = this.#parts.get(key);
      if (part === undefined) {
        part = { member, rules: this.#rulesInside(member, isEverything ? null : (windows as Window[])) };
        this.#parts.set(key, part);
      }
      return part.rules.length === 0 && this.groupOf(member).defaultAction === undefined ? [] : [part];
    });
  }

  /**
   * Returns the indexes of the rules of a group that match a flow of at least one window; null: all rules.
   */
  #rulesInside(member: Member, windows: readonly Window[] | null): readonly number[] {
    if (windows === null) return [...this.groupOf(member).rules.keys()];
    const found = windows.map((window) => this.#rulesInsideOne(member, window)).filter(({ length }) => length > 0);
    if (found.length < 2) return found[0] ?? [];
    return [...new Set(found.flat())].sort((left, right) => left - right);
  }

  #window(shapes: readonly Shape[]): Window {
    return new Window(shapes, (rule) => this.shapeOf(rule), this.#space);
  }

  shapeOf(rule: Rule): Shape {
    let shape = this.#shapes.get(rule);
    if (shape === undefined) {
      shape = shapeOf(rule, this.#space);
      this.#shapes.set(rule, shape);
    }
    return shape;
  }

  #rulesInsideOne(member: Member, window: Window): readonly number[] {
    const ofWindow = this.#inside.get(window) ?? new Map<readonly Rule[], readonly number[]>();
    this.#inside.set(window, ofWindow);
    const { rules } = this.groupOf(member);
    let found = ofWindow.get(rules);
    if (found === undefined) {
      this.budget.steps(rules.length / RULES_OF_A_STEP);
      found = window.rulesInside(rules);
      ofWindow.set(rules, found);
    }
    return found;
  }

  groupOf({ side, code }: Member): Group {
    return itemAt(this.policies[side].groups, groupOf(code));
  }
}

function isAlike({ changedRules, changedDefault }: GroupPair): boolean {
  return changedRules[0].size + changedRules[1].size === 0 && changedDefault === 0;
}

export function wholeShape({
  destinations = null,
  keys = [{ low: 0, high: KEYS - 1 }],
  sourcePorts = null,
}: Question): Shape {
  return { destinations, keys, sourcePorts };
}

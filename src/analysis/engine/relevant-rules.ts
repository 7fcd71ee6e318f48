import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import type { Budget } from '#policy/model/budget.js';
import { type AddressSpace, everythingIn, mergedSpans, overlap, type Span, spansOf } from './address-space.js';
import type { Alignment, GroupPair } from './alignment.js';
import type { ValueSet } from './pieces.js';
import { groupOf, isConditional, type Population, placeOf, type SourceGroup, scoped } from './populations.js';
import { KEYS } from './rule-diagrams.js';
import { hasFlows, type Shape, shapeOf, Window } from './rule-shape.js';

/**
 * If a group has more changed rules than this, the rules that match none of their flows are not left out.
 */
const MAX_SHAPES = 1_024;
/** If the groups behind a default have more networks than this, the default is not left out. */
const MAX_BEHIND = 64;
/** The number of rules that are compared with a window in the time of one step. */
const RULES_OF_A_STEP = 4;

/** The flows of one family that a question is about. Null or omitted: every value. */
export type Question = Partial<Shape> & { readonly sources?: readonly Span[] | null };

export type Side = 0 | 1;
export const SIDES = [0, 1] as const;

/**
 * A group of one policy, for sources that belong to the same groups (a population). `code`: see `Scoped`.
 * `pair`: the same group in the other policy; undefined if the sources do not belong to it in the same way.
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
  /** The parts by member, for each list of changed members. Null: no rule and no default matters. */
  readonly #parts = new Map<string, Map<number, Part | null>>();
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
    { space, question }: { readonly space: AddressSpace; readonly question: Question | undefined },
  ) {
    this.#space = space;
    this.#asked = question === undefined ? null : this.#window([wholeShape(question)]);
  }

  /** Finds the rules that matter for a population. Returns undefined if nothing changed for it. */
  plan({ groups, sources }: Population): Planned | undefined {
    const members = SIDES.map((side) =>
      groups[side].map((code) => this.#memberOf(side, code, groups[side === 0 ? 1 : 0])),
    ) as [Member[], Member[]];
    const changed: Member[] = [];
    for (const list of members) for (const member of list) if (!isAlike(member.pair)) changed.push(member);
    if (this.alignment.changedDefault === 0 && changed.length === 0) return undefined;
    return { sources, members, changed, parts: this.#partsOf(members, changed) };
  }

  /**
   * Leaves out groups without which each flow of the question, or of a rule of a changed group, is decided
   * alike. Returns all groups if too many rules changed.
   */
  thatMatter(groups: readonly SourceGroup[], changed: readonly SourceGroup[]): readonly SourceGroup[] {
    const window = this.#asked ?? this.#windowOfAll(changed);
    if (window === null) return groups;
    const ofChanged = new Set(this.#asked === null ? changed : []);
    const hasRules = groups.filter((group) => {
      const { rules } = this.#groupOf(group);
      return ofChanged.has(group) || this.#search(rules, window).length > 0;
    });
    const withRules = new Set(hasRules);
    const deciding = groups.filter((group) => withRules.has(group) || this.#groupOf(group).defaultAction !== undefined);
    if (this.#asked !== null) return deciding;
    const needed = SIDES.map((side) => this.#needed(deciding, side, withRules));
    // Omit a group from both compared policies or from none, because a group that only one of them has counts
    // as changed.
    return deciding.filter((group) => {
      const pair = this.alignment.pairs[group.side][group.group];
      const [one, other] = pair === undefined ? [] : pair.indexes;
      return pair === undefined || needed[0]?.has(one as number) === true || needed[1]?.has(other as number) === true;
    });
  }

  /**
   * Returns the indexes of the groups without those that have only a default that decides as the default of
   * the policy. They are needed only in front of other groups with the same sources.
   */
  #needed(groups: readonly SourceGroup[], side: Side, withRules: ReadonlySet<SourceGroup>): Set<number> {
    const { default: last } = this.policies[side];
    const needed = new Set<number>();
    const everywhere = everythingIn(this.#space);
    let behind: readonly Span[] = [];
    for (const of of groups.filter((group) => group.side === side).reverse()) {
      const { defaultAction, mode } = this.#groupOf(of);
      const decidesAlike = !withRules.has(of) && defaultAction === last.action && mode === last.mode;
      if (decidesAlike && !of.hasSelectors && !overlap(of.spans, behind)) continue;
      needed.add(of.group);
      const isWide = of.hasSelectors || behind.length > MAX_BEHIND;
      behind = isWide ? [everywhere] : mergedSpans([...behind, ...of.spans]);
    }
    return needed;
  }

  #groupOf({ side, group }: SourceGroup): Group {
    return itemAt(this.policies[side].groups, group);
  }

  #windowOfAll(changed: readonly SourceGroup[]): Window | null {
    const shapes: Shape[] = [];
    for (const group of changed) {
      const { defaultAction } = this.#groupOf(group);
      const rules = this.changedRulesOf(group);
      const hasDefault = hasChangedDefault(this.#pairWithSameSources(group), defaultAction);
      if (hasDefault || shapes.length + rules.length > MAX_SHAPES) return null;
      for (const rule of rules) shapes.push(this.shapeOf(rule));
    }
    return this.#window(shapes);
  }

  /** Returns the rules of a changed group that can decide flows otherwise: all, if its sources changed. */
  changedRulesOf(of: SourceGroup): readonly Rule[] {
    const pair = this.#pairWithSameSources(of);
    return pair === undefined ? this.#groupOf(of).rules : [...pair.changedRules[of.side].keys()];
  }

  #pairWithSameSources({ side, group }: SourceGroup): GroupPair | undefined {
    const pair = this.alignment.pairs[side][group];
    return pair?.sameSelectors === true && this.#haveSameSources(pair) ? pair : undefined;
  }

  /** Whether two groups have the same sources of this family. */
  #haveSameSources({ sameSources, indexes }: GroupPair): boolean {
    if (sameSources) return true;
    const [one, other] = SIDES.map((side) =>
      spansOf(itemAt(this.policies[side].groups, indexes[side]).sources, this.#space),
    ) as [readonly Span[], readonly Span[]];
    return (
      one.length === other.length &&
      one.every(({ start, end }, at) => start === other[at]?.start && end === other[at]?.end)
    );
  }

  /** `others`: the groups of the population on the other side, ascending. */
  #memberOf(side: Side, code: number, others: readonly number[]): Member {
    let pair = this.alignment.pairs[side][groupOf(code)];
    if (pair !== undefined && isConditional(code) && !pair.sameSelectors) pair = undefined;
    if (pair !== undefined) {
      const twin = scoped(pair.indexes[side === 0 ? 1 : 0], isConditional(code));
      if (others[placeOf(others, twin)] !== twin) pair = undefined;
    }
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
    const isEverything = hasChangedDefault(pair, defaultAction) || changed.length > MAX_SHAPES;
    const window = isEverything ? null : this.#window(changed.map((rule) => this.shapeOf(rule)));
    this.#windows.set(member, window);
    return window;
  }

  #partsOf(members: Planned['members'], changed: readonly Member[]): [Part[], Part[]] {
    const windows = this.#asked !== null ? [this.#asked] : changed.map((member) => this.#windowOf(member));
    const isEverything = this.#asked === null && (this.alignment.changedDefault > 0 || windows.includes(null));
    const key = this.#asked !== null ? 'asked' : isEverything ? 'all' : changed.map(({ number }) => number).join();
    const known = this.#parts.get(key) ?? new Map<number, Part | null>();
    this.#parts.set(key, known);
    const parts: [Part[], Part[]] = [[], []];
    for (const side of SIDES)
      for (const member of members[side]) {
        let part = known.get(member.number);
        if (part === undefined) {
          const rules = this.#rulesInside(member, isEverything ? null : (windows as Window[]));
          part = rules.length === 0 && this.groupOf(member).defaultAction === undefined ? null : { member, rules };
          known.set(member.number, part);
        }
        if (part !== null) parts[side].push(part);
      }
    return parts;
  }

  /**
   * Returns the indexes of the rules of a group that match a flow of at least one window; null: all rules.
   */
  #rulesInside(member: Member, windows: readonly Window[] | null): readonly number[] {
    const { rules } = this.groupOf(member);
    if (windows === null) return [...rules.keys()].filter((at) => hasFlows(this.shapeOf(itemAt(rules, at))));
    const found = windows.map((window) => this.#rulesInsideOne(rules, window)).filter(({ length }) => length > 0);
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

  #rulesInsideOne(rules: readonly Rule[], window: Window): readonly number[] {
    if (this.#inside.get(window)?.has(rules) !== true) this.budget.steps(rules.length / RULES_OF_A_STEP);
    return this.#search(rules, window);
  }

  #search(rules: readonly Rule[], window: Window): readonly number[] {
    let ofWindow = this.#inside.get(window);
    if (ofWindow === undefined) {
      ofWindow = new Map();
      this.#inside.set(window, ofWindow);
    }
    let found = ofWindow.get(rules);
    if (found === undefined) {
      found = window.rulesInside(rules);
      ofWindow.set(rules, found);
    }
    return found;
  }

  groupOf({ side, code }: Member): Group {
    return itemAt(this.policies[side].groups, groupOf(code));
  }
}

function isAlike(pair: GroupPair | undefined): boolean {
  if (pair === undefined) return false;
  const { changedRules, changedDefault } = pair;
  return changedRules[0].size + changedRules[1].size === 0 && changedDefault === 0;
}

const hasChangedDefault = (pair: GroupPair | undefined, own: Group['defaultAction']): boolean =>
  pair === undefined ? own !== undefined : pair.changedDefault > 0;

export function wholeShape({
  destinations = null,
  keys = [{ low: 0, high: KEYS - 1 }],
  sourcePorts = null,
}: Question): Shape {
  return { destinations, keys, sourcePorts };
}

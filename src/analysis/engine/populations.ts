import { familyOf } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import type { Group } from '#contracts/policy/policy-model.js';
import { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';
import { KeptByList, type Span } from './address-space.js';
import type { Axis } from './axis.js';
import { addInterval } from './diagram-level.js';
import type { ValueSet } from './pieces.js';

/**
 * A code for a group that a source belongs to: twice the index of the group; plus 1 if the source belongs to
 * it only while a selector selects the source.
 */
export type Scoped = number;
export const scoped = (group: number, isConditional: boolean): Scoped => 2 * group + (isConditional ? 1 : 0);
export const groupOf = (code: Scoped): number => code >>> 1;
export const isConditional = (code: Scoped): boolean => (code & 1) === 1;

/** A source group of one of the two compared policies, with its sources. */
export type SourceGroup = {
  readonly side: 0 | 1;
  readonly group: number;
  readonly spans: readonly Span[];
  readonly hasSelectors: boolean;
};

/** A set of sources that belong to the same groups, in both compared policies. */
export type Population = {
  /** For each of the two policies, its groups with these sources, in the order of evaluation (`Scoped`). */
  readonly groups: readonly [readonly Scoped[], readonly Scoped[]];
  /** The sources, as indexes of intervals of addresses (see `Axis`). */
  readonly sources: ValueSet;
};

/**
 * The indexes of the groups of a policy that decide something, and to which a source of a family can belong.
 */
export const decidingGroups = new KeptByList((groups: readonly Group[], { family }): readonly number[] => {
  const found: number[] = [];
  for (let at = 0; at < groups.length; at++) {
    const { sources, selectors, rules, defaultAction } = itemAt(groups, at);
    if (rules.length === 0 && defaultAction === undefined) continue;
    if (selectors.length > 0 || sources.some(({ address }) => familyOf(address) === family)) found.push(at);
  }
  return found;
});

/**
 * Divides a set of sources into populations: sets of sources that belong to the same groups. `within`: the
 * sources, as indexes of intervals of addresses (see `Axis`).
 */
export function populationsOf(
  groups: readonly SourceGroup[],
  axis: Axis,
  within: ValueSet,
  budget: Budget,
): Population[] {
  const active: [Scoped[], Scoped[]] = [[], []];
  const events: { readonly at: number; readonly begins: boolean; readonly of: SourceGroup }[] = [];
  for (const of of groups) {
    if (of.hasSelectors) insert(active[of.side], scoped(of.group, true));
    for (const { start, end } of of.spans) {
      events.push({ at: axis.indexOf(start), begins: true, of });
      events.push({ at: axis.indexOf(end), begins: false, of });
    }
  }
  events.sort((left, right) => left.at - right.at);
  const sequences = [new Sequences(budget, 'lists', 1), new Sequences(budget, 'lists', 1)] as const;
  const found = new Map<number, { groups: [readonly Scoped[], readonly Scoped[]] }>();
  const sources = new Map<number, number[]>();
  let next = 0;
  for (let at = 0; at < within.length; at += 2) {
    const end = itemAt(within, at + 1);
    for (let from = itemAt(within, at); from < end; ) {
      while (next < events.length && itemAt(events, next).at <= from) {
        const { begins, of } = itemAt(events, next++);
        const list = active[of.side];
        if (begins) insert(list, scoped(of.group, false));
        else remove(list, scoped(of.group, false));
        if (!of.hasSelectors) continue;
        if (begins) remove(list, scoped(of.group, true));
        else insert(list, scoped(of.group, true));
      }
      const to = Math.min(end, events[next]?.at ?? end);
      const numbers = [0, 1].map((side) => {
        const list = active[side as 0 | 1];
        return sequences[side as 0 | 1].intern(Uint32Array.from(list), 0, list.length);
      });
      const key = itemAt(numbers, 0) * PAIR + itemAt(numbers, 1);
      if (!found.has(key)) found.set(key, { groups: [[...active[0]], [...active[1]]] });
      addInterval(sources, key, from, to);
      from = to;
    }
  }
  return [...found].map(([key, population]) => ({ ...population, sources: sources.get(key) ?? [] }));
}

function insert(list: Scoped[], code: Scoped): void {
  list.splice(placeOf(list, code), 0, code);
}

function remove(list: Scoped[], code: Scoped): void {
  list.splice(placeOf(list, code), 1);
}

/** Returns the index at which a group code (`Scoped`) must be inserted into an ascending list. */
export function placeOf(list: readonly Scoped[], code: Scoped): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (itemAt(list, middle) < code) low = middle + 1;
    else high = middle;
  }
  return low;
}

const PAIR = 2 ** 26;

import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { u8At, u32At } from '#arrays/read.js';
import type { LookupTables } from '#contracts/dns/dns-lookup-tables.js';
import type { Intervals } from '#contracts/policy/interval-map.js';
import { NONE } from '#contracts/policy/program.js';
import { Sequences } from '#policy/compile/sequences.js';
import { type Populations, sourceMap } from '#policy/compile/sources/source-populations.js';
import { Budget } from '#policy/model/budget.js';

/** A mark bit of a group: the group has rules that decide DNS lookups by hostname. */
export const BY_NAME = 1;
/** A mark bit of a group: the group decides every DNS lookup that reaches the group. */
export const FINAL = 2;

/**
 * Source addresses divided into classes. The same groups decide the DNS lookups of all sources in a class.
 */
export type LookupClasses = {
  readonly found: Populations;
  readonly marks: Uint8Array;
  readonly sources: Intervals;
  readonly members: LookupTables['members'];
  readonly offsets: Uint32Array;
  readonly groups: Uint32Array;
  /**
   * For each class of sources, the index of the group that decides the DNS lookups that no hostname rule
   * decides; `NONE` if the class has no such group.
   */
  readonly finals: Uint32Array;
};

/**
 * Divides source addresses into classes for DNS lookups. `marks` contains, for each group, `BY_NAME`,
 * `FINAL`, both or 0. Returns `known` if neither `found` nor `marks` has changed.
 */
export function lookupClasses(found: Populations, marks: Uint8Array, known?: LookupClasses): LookupClasses {
  if (known?.found === found && isSame(known.marks, marks)) return known;
  const classes = new Sequences(Budget.unlimited, 'lists', 1);
  const ofPopulations = new GrowingUint32Array();
  const own = new GrowingUint32Array(16);
  const { groups } = found;
  for (let population = 0; population < groups.count; population++) {
    own.length = 0;
    let final = NONE;
    for (let at = groups.start(population); at < groups.end(population) && final === NONE; at++) {
      const group = u32At(groups.cells.array, at);
      const mark = u8At(marks, group);
      if ((mark & BY_NAME) !== 0) own.push(group);
      if ((mark & FINAL) !== 0) final = group;
    }
    own.push(final);
    ofPopulations.push(classes.intern(own.array, 0, own.length));
  }
  const members =
    found.members === null
      ? null
      : { bases: found.members.bases, trees: found.members.trees, classes: ofPopulations.trimmed() };
  return { found, marks, sources: sourceMap(found, ofPopulations), members, ...tablesOf(classes) };
}

function tablesOf(classes: Sequences): Pick<LookupClasses, 'offsets' | 'groups' | 'finals'> {
  const offsets = new GrowingUint32Array();
  const groups = new GrowingUint32Array();
  const finals = new GrowingUint32Array();
  offsets.push(0);
  for (let number = 0; number < classes.count; number++) {
    const last = classes.end(number) - 1;
    groups.append(classes.cells.array, classes.start(number), last);
    finals.push(u32At(classes.cells.array, last));
    offsets.push(groups.length);
  }
  return { offsets: offsets.trimmed(), groups: groups.trimmed(), finals: finals.trimmed() };
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at++) if (one[at] !== other[at]) return false;
  return true;
}

import type { Intervals } from '#contracts/interval-map.js';
import { NONE } from '#contracts/program.js';
import { Budget } from '#policy/model/budget.js';
import { GrowingWords } from '#policy/model/growing-words.js';
import { Sequences } from './sequences.js';
import { type Populations, sourceMap } from './source-populations.js';

/** The group has rules that decide lookups by hostname. */
export const BY_NAME = 1;
/** The group decides every lookup. */
export const FINAL = 2;

/** Classes of sources. All sources of a class have the same groups that decide lookups. */
export type LookupClasses = {
  readonly found: Populations;
  readonly marks: Uint8Array;
  readonly sources: Intervals;
  readonly offsets: Uint32Array;
  readonly groups: Uint32Array;
  /** For each class the group that decides every lookup, or `NONE`. */
  readonly finals: Uint32Array;
};

/**
 * `marks` holds for each group a combination of `BY_NAME` and `FINAL`. Returns `known` if neither the
 * populations nor the marks changed.
 */
export function lookupClasses(found: Populations, marks: Uint8Array, known?: LookupClasses): LookupClasses {
  if (known?.found === found && isSame(known.marks, marks)) return known;
  const classes = new Sequences(Budget.unlimited, 'lists', 1);
  const ofPopulations = new GrowingWords();
  const own = new GrowingWords(16);
  const { groups } = found;
  for (let population = 0; population < groups.count; population++) {
    own.length = 0;
    let final = NONE;
    for (let at = groups.start(population); at < groups.end(population) && final === NONE; at++) {
      const group = groups.cells.array[at] as number;
      const mark = marks[group] as number;
      if ((mark & BY_NAME) !== 0) own.push(group);
      if ((mark & FINAL) !== 0) final = group;
    }
    own.push(final);
    ofPopulations.push(classes.intern(own.array, 0, own.length));
  }
  return { found, marks, sources: sourceMap(found, ofPopulations), ...tablesOf(classes) };
}

function tablesOf(classes: Sequences): Pick<LookupClasses, 'offsets' | 'groups' | 'finals'> {
  const offsets = new GrowingWords();
  const groups = new GrowingWords();
  const finals = new GrowingWords();
  offsets.push(0);
  for (let number = 0; number < classes.count; number++) {
    const last = classes.end(number) - 1;
    groups.append(classes.cells.array, classes.start(number), last);
    finals.push(classes.cells.array[last] as number);
    offsets.push(groups.length);
  }
  return { offsets: offsets.trimmed(), groups: groups.trimmed(), finals: finals.trimmed() };
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at++) if (one[at] !== other[at]) return false;
  return true;
}

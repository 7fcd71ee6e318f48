import type { Group } from '#contracts/policy-model.js';
import { containsAll } from '#policy/model/rule-coverage.js';
import { sameSources } from '#policy/model/same-sources.js';
import { PrefixIndex } from './prefix-index.js';

const MAX_HOLDERS = 8;

type Found = {
  readonly groups: readonly Group[];
  readonly unreachable: ReadonlySet<number>;
  readonly holders: ReadonlyMap<number, readonly number[]>;
};

/**
 * Finds the earlier groups that contain all sources of a group. Caches the result for the next policy if the
 * two policies have equal sources.
 */
export class SourceHolders {
  #latest: Found | undefined;

  /**
   * Maps the index of a group to at most `MAX_HOLDERS` earlier groups that contain all its sources, the
   * nearest group first. Unreachable groups are not included.
   */
  of(groups: readonly Group[], unreachable: ReadonlySet<number>): Found['holders'] {
    const known = this.#latest;
    const isKnown =
      known !== undefined &&
      sameSources(known.groups, groups) &&
      known.unreachable.size === unreachable.size &&
      [...unreachable].every((group) => known.unreachable.has(group));
    const holders = isKnown ? known.holders : holdersOf(groups, unreachable);
    this.#latest = { groups, unreachable, holders };
    return holders;
  }
}

function holdersOf(groups: readonly Group[], unreachable: ReadonlySet<number>): Found['holders'] {
  const found = new Map<number, readonly number[]>();
  const index = new PrefixIndex(groups.length);
  for (const [number, { sources, rules, dynamic }] of groups.entries()) {
    if (unreachable.has(number)) continue;
    const holders = dynamic ? [] : holding(groups, number, index);
    if (holders.length > 0) found.set(number, holders);
    if (rules.length > 0) for (const source of sources) index.add(source, 0, number);
  }
  return found;
}

function holding(groups: readonly Group[], number: number, index: PrefixIndex): readonly number[] {
  const { sources } = groups[number] as Group;
  const holders: number[] = [];
  const [first] = sources;
  if (first === undefined) return holders;
  index.find(first, 0, (candidate) => {
    if (holders.includes(candidate) || !containsAll((groups[candidate] as Group).sources, sources)) return false;
    return holders.push(candidate) === MAX_HOLDERS;
  });
  return holders;
}

import { itemAt } from '#arrays/read.js';
import type { Group } from '#contracts/policy/policy-model.js';
import { containsAll } from '#policy/model/rules/rule-coverage.js';
import { sameSources } from '#policy/model/sources/same-sources.js';
import { PrefixIndex } from './prefix-index.js';

const MAX_CONTAINING = 8;

type Found = {
  readonly groups: readonly Group[];
  readonly unreachable: ReadonlySet<number>;
  readonly containing: ReadonlyMap<number, readonly number[]>;
};

/**
 * Finds the earlier groups that contain all sources of a group. Keeps the latest result, and uses it again
 * for a policy whose groups have equal sources and whose unreachable groups are the same.
 */
export class ContainingGroups {
  #latest: Found | undefined;

  /**
   * Maps the index of a group to at most `MAX_CONTAINING` earlier groups that contain all its sources. These
   * groups have rules, and a packet can reach them. The search is bounded, so some containing groups may be
   * missing.
   */
  of(groups: readonly Group[], unreachable: ReadonlySet<number>): Found['containing'] {
    const known = this.#latest;
    const isKnown =
      known !== undefined &&
      sameSources(known.groups, groups) &&
      known.unreachable.size === unreachable.size &&
      [...unreachable].every((group) => known.unreachable.has(group));
    const containing = isKnown ? known.containing : containingGroupsOf(groups, unreachable);
    this.#latest = { groups, unreachable, containing };
    return containing;
  }
}

function containingGroupsOf(groups: readonly Group[], unreachable: ReadonlySet<number>): Found['containing'] {
  const found = new Map<number, readonly number[]>();
  const index = new PrefixIndex(groups.length);
  for (const [number, { sources, rules, selectors }] of groups.entries()) {
    if (unreachable.has(number)) continue;
    const containing = selectors.length > 0 ? [] : groupsContaining(groups, number, index);
    if (containing.length > 0) found.set(number, containing);
    if (rules.length > 0) for (const source of sources) index.add(source, 0, number);
  }
  return found;
}

function groupsContaining(groups: readonly Group[], number: number, index: PrefixIndex): readonly number[] {
  const { sources } = itemAt(groups, number);
  const containing: number[] = [];
  const [first] = sources;
  if (first === undefined) return containing;
  index.find(first, 0, (candidate) => {
    if (containing.includes(candidate) || !containsAll(itemAt(groups, candidate).sources, sources)) return false;
    return containing.push(candidate) === MAX_CONTAINING;
  });
  return containing;
}

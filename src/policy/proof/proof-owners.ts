import { familyOf } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import { EMPTY_SET } from '#contracts/kubernetes/member-tables.js';
import type { ListedMembership } from '#contracts/kubernetes/membership.js';
import type { Address, Family, Policy } from '#contracts/policy/policy-model.js';
import { NO_OWNER_CELL } from '#contracts/policy/proof-types.js';
import { addressesWithSets, groupSetsOf, selectorGroups } from '#policy/model/sources/group-sets.js';
import { DENY_ONLY, NO_OWNER, type Owner, type SourceIndex } from '#policy/model/sources/source-index.js';

/**
 * A source with an owner (Kubernetes object). `owner`: the number that stands for the owner in its packets.
 */
export type OwnedSource = { readonly source: Address; readonly owner: number };

/**
 * The owners (Kubernetes objects) of the sources of proof packets. Their numbers in packets must equal those
 * of the compiler, so both use `groupSetsOf`. All other data comes from the policy and the members,
 * independently of the compiler.
 */
export class ProofOwners {
  readonly #sets: readonly (readonly number[])[];
  /**
   * The sources of the proof packets of the family with owners. For each combination of groups whose prefixes
   * contain an address, they contain one member for each set of groups, and one deny-only source.
   */
  readonly sources: readonly OwnedSource[];

  constructor({ groups }: Policy, index: SourceIndex, membership: ListedMembership, family: Family) {
    const selectors = selectorGroups(groups, membership.scope);
    const { sets, ofSelectorSets } = groupSetsOf(selectors, membership);
    this.#sets = sets;
    this.sources = selectors.size === 0 ? [] : ownedSources(index, ofSelectorSets, membership, family);
  }

  ownerOf(cell: number): Owner {
    if (cell === NO_OWNER_CELL) return NO_OWNER;
    return cell === DENY_ONLY_CELL ? DENY_ONLY : itemAt(this.#sets, cell - DENY_ONLY_CELL - EMPTY_SET);
  }
}

const DENY_ONLY_CELL = 1;

function ownedSources(
  index: SourceIndex,
  ofSelectorSets: ReadonlyMap<number, number>,
  membership: ListedMembership,
  family: Family,
): readonly OwnedSource[] {
  const found = new Map<string, OwnedSource>();
  for (const [source, number] of addressesWithSets(membership)) {
    const set = ofSelectorSets.get(number);
    if (set === undefined || familyOf(source) !== family) continue;
    const own = index
      .groupsOfOwner(source, [])
      .map(({ group, scope }) => `${group}${scope}`)
      .join();
    for (const owner of [DENY_ONLY_CELL, DENY_ONLY_CELL + EMPTY_SET, DENY_ONLY_CELL + EMPTY_SET + set]) {
      const key = `${owner} ${own}`;
      if (!found.has(key)) found.set(key, { source, owner });
    }
  }
  return [...found.values()];
}

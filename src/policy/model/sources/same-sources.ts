import { itemAt } from '#arrays/read.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Group, Prefix } from '#contracts/policy/policy-model.js';

/**
 * Whether the groups at each index of the two lists have equal sources. Both or neither must have rules, and
 * both or neither must have a default action. Then each source address is in the same groups of both lists.
 */
export function sameSources(one: readonly Group[], other: readonly Group[]): boolean {
  return one.length === other.length && one.every((group, index) => isAlike(group, itemAt(other, index)));
}

function isAlike(one: Group, other: Group): boolean {
  if (one === other) return true;
  return (
    one.selectors.length === other.selectors.length &&
    one.selectors.every(({ key }, at) => key === other.selectors[at]?.key) &&
    (one.rules.length === 0) === (other.rules.length === 0) &&
    (one.defaultAction === undefined) === (other.defaultAction === undefined) &&
    areSamePrefixes(one.sources, other.sources)
  );
}

/**
 * Whether two selector resolutions are equal: the same resolved selectors, and the same prefixes in the same
 * order. A policy that was compiled with one of them is then valid with the other one.
 */
export function isSameResolution(one: SelectorResolution, other: SelectorResolution): boolean {
  if (one === other) return true;
  return (
    one.resolved.size === other.resolved.size &&
    one.networks.size === other.networks.size &&
    [...one.resolved].every((key) => other.resolved.has(key)) &&
    [...one.networks].every(([key, prefixes]) => areSamePrefixes(prefixes, other.networks.get(key))) &&
    areSamePrefixes(one.podNetworks, other.podNetworks)
  );
}

function areSamePrefixes(one: readonly Prefix[], other: readonly Prefix[] | undefined): boolean {
  return (
    one.length === other?.length &&
    one.every(({ address, length }, at) => address === other[at]?.address && length === other[at]?.length)
  );
}

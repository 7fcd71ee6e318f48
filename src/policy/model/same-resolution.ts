import type { SelectorResolution } from '#contracts/membership.js';
import type { Prefix } from '#contracts/policy-model.js';

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
    areSamePrefixes(one.closed, other.closed)
  );
}

function areSamePrefixes(one: readonly Prefix[], other: readonly Prefix[] | undefined): boolean {
  return (
    one.length === other?.length &&
    one.every(({ address, length }, at) => address === other[at]?.address && length === other[at]?.length)
  );
}

import { itemAt } from '#arrays/read.js';
import type { Group, Prefix } from '#contracts/policy-model.js';

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
    one.sources.length === other.sources.length &&
    one.sources.every((prefix, at) => isSame(prefix, other.sources[at]))
  );
}

function isSame({ address, length }: Prefix, other: Prefix | undefined): boolean {
  return other?.address === address && other.length === length;
}

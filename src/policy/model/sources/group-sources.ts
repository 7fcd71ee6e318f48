import { f64At, itemAt, u32At } from '#arrays/read.js';
import { sharedWords } from '#arrays/shared-array.js';
import { NO_SELECTORS, type SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Group } from '#contracts/policy/policy-model.js';
import type { GroupSources } from '#contracts/policy/rule-names.js';
import { mask, ofFamily } from '#policy/model/ip-address.js';
import { staticSources } from './rule-scope.js';

/** An address takes 32 of the 53 bits of an exact number. Further groups are left out. */
const MOST_GROUPS = 2 ** 21;
const LENGTHS = 33;
/** The maximum number of groups that a message, a flow or a finding names for its source. */
export const NAMED_GROUPS = 16;

/**
 * Returns the IPv4 prefixes of all groups, also of groups without rules. The networks that a resolved
 * selector selects are among them, and its members are not.
 */
export function groupSourcesOf(groups: readonly Group[], resolution: SelectorResolution = NO_SELECTORS): GroupSources {
  const sources = groups.slice(0, MOST_GROUPS).map((group) => ofFamily(staticSources(group, resolution), 'ipv4'));
  const counts = new Uint32Array(LENGTHS);
  for (const prefixes of sources) for (const { length } of prefixes) counts[length] = u32At(counts, length) + 1;
  const offsets = new Uint32Array(LENGTHS + 1);
  for (let length = 0; length < LENGTHS; length++) offsets[length + 1] = u32At(offsets, length) + u32At(counts, length);
  const count = u32At(offsets, LENGTHS);
  const cells = new Float64Array(count);
  const next = offsets.slice();
  for (let group = 0; group < sources.length; group++)
    for (const { address, length } of itemAt(sources, group)) {
      const at = u32At(next, length);
      next[length] = at + 1;
      cells[at] = address * MOST_GROUPS + group;
    }
  const addresses = sharedWords(count);
  const groupNumbers = sharedWords(count);
  for (let length = 0; length < LENGTHS; length++)
    cells.subarray(u32At(offsets, length), u32At(offsets, length + 1)).sort();
  for (let at = 0; at < count; at++) {
    const cell = f64At(cells, at);
    addresses[at] = Math.floor(cell / MOST_GROUPS);
    groupNumbers[at] = cell % MOST_GROUPS;
  }
  return {
    offsets,
    addresses,
    groups: groupNumbers,
    hasSelectors: groups.some(({ selectors }) => selectors.length > 0),
  };
}

/** Returns the indexes of the first `most` groups with a prefix that contains an address, in order. */
export function groupsWith({ offsets, addresses, groups }: GroupSources, address: number, most: number): number[] {
  const found = new Set<number>();
  for (let length = 0; length < LENGTHS; length++) {
    const end = u32At(offsets, length + 1);
    const network = mask(address, length);
    // Groups with the same prefix are in ascending order, so the first `most` of each length are enough.
    let at = firstAt(addresses, u32At(offsets, length), end, network);
    for (let left = most; left > 0 && at < end && u32At(addresses, at) === network; left--, at++)
      found.add(u32At(groups, at));
  }
  return [...found].sort((one, other) => one - other).slice(0, most);
}

/** Returns the first index in a sorted range with a value of at least `wanted`; `end` if there is none. */
function firstAt(sorted: Uint32Array, from: number, end: number, wanted: number): number {
  let low = from;
  let high = end;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (u32At(sorted, middle) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

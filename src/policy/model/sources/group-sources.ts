import { ascending, bitsOf, familyOf, LAST_ADDRESS, mask, ofFamily } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import { sharedWords } from '#arrays/shared-array.js';
import { NO_SELECTORS, type SelectorResolution } from '#contracts/kubernetes/membership.js';
import { ADDRESS_WORDS, compareWords, wordsOf } from '#contracts/policy/address-words.js';
import type { Address, Family, Group } from '#contracts/policy/policy-model.js';
import type { GroupSources, SourcePrefixes } from '#contracts/policy/rule-names.js';
import { staticSources } from './rule-scope.js';

/** An IPv4 address takes 32 of the 53 bits of an exact number. Further groups are left out. */
const GROUP_BITS = 21;
const MOST_GROUPS = 2 ** GROUP_BITS;
/** The maximum number of groups that a message, a flow or a finding names for its source. */
export const NAMED_GROUPS = 16;

/**
 * Returns the prefixes of all groups, also of groups without rules. The networks that a resolved selector
 * selects are among them, and its members are not.
 */
export function groupSourcesOf(groups: readonly Group[], resolution: SelectorResolution = NO_SELECTORS): GroupSources {
  const named = groups.slice(0, MOST_GROUPS);
  return {
    ipv4: prefixesOf(named, 'ipv4', resolution),
    ipv6: prefixesOf(named, 'ipv6', resolution),
    hasSelectors: groups.some(({ selectors }) => selectors.length > 0),
  };
}

function prefixesOf(groups: readonly Group[], family: Family, resolution: SelectorResolution): SourcePrefixes {
  const lengths = bitsOf(LAST_ADDRESS[family]) + 1;
  /** For each length the addresses of its prefixes, each in one number with its group. */
  const cells: Address[][] = Array.from({ length: lengths }, () => []);
  let count = 0;
  for (const [group, each] of groups.entries())
    for (const { address, length } of ofFamily(staticSources(each, resolution), family)) {
      cells[length]?.push(cellOf(address, group));
      count++;
    }
  const words = ADDRESS_WORDS[family];
  const offsets = new Uint32Array(lengths + 1);
  const addresses = sharedWords(count * words);
  const groupNumbers = sharedWords(count);
  let at = 0;
  for (const [length, ofLength] of cells.entries()) {
    for (const cell of ascending(ofLength)) {
      const { address, group } = partsOf(cell);
      addresses.set(wordsOf(address), at * words);
      groupNumbers[at++] = group;
    }
    offsets[length + 1] = at;
  }
  return { offsets, addresses, groups: groupNumbers };
}

function cellOf(address: Address, group: number): Address {
  return typeof address === 'number' ? address * MOST_GROUPS + group : (address << BigInt(GROUP_BITS)) | BigInt(group);
}

function partsOf(cell: Address): { readonly address: Address; readonly group: number } {
  return typeof cell === 'number'
    ? { address: Math.floor(cell / MOST_GROUPS), group: cell % MOST_GROUPS }
    : { address: cell >> BigInt(GROUP_BITS), group: Number(cell & BigInt(MOST_GROUPS - 1)) };
}

/** Returns the indexes of the first `most` groups with a prefix that contains an address, in order. */
export function groupsWith(sources: GroupSources, address: Address, most: number): number[] {
  const family = familyOf(address);
  const { offsets, addresses, groups } = sources[family];
  const words = ADDRESS_WORDS[family];
  const found = new Set<number>();
  for (let length = 0; length < offsets.length - 1; length++) {
    const [from, end] = [u32At(offsets, length), u32At(offsets, length + 1)];
    if (from === end) continue;
    const network = wordsOf(mask(address, length));
    const isBelow = (at: number): boolean => compareWords(addresses, at * words, network, 0, words) < 0;
    // Prefixes of equal length are sorted by group, so the first `most` groups of each length are sufficient.
    let at = firstAt(from, end, isBelow);
    for (let left = most; left > 0 && at < end; left--, at++) {
      if (compareWords(addresses, at * words, network, 0, words) !== 0) break;
      found.add(u32At(groups, at));
    }
  }
  return [...found].sort((one, other) => one - other).slice(0, most);
}

/** Returns the first index in a sorted range that is not below what is wanted; `end` if there is none. */
function firstAt(from: number, end: number, isBelow: (index: number) => boolean): number {
  let low = from;
  let high = end;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isBelow(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

import { lastAddress, ofFamily } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import type { Address, Family, Prefix } from '#contracts/policy/policy-model.js';

/** A set of addresses of one family, given by many prefixes. */
export class SourceRanges {
  /** The ranges of the prefixes that no other prefix contains, ascending. */
  readonly #ranges: { readonly first: Address; readonly last: Address }[] = [];

  constructor(prefixes: readonly Prefix[], family: Family) {
    const sorted = [...ofFamily(prefixes, family)].sort((one, other) =>
      one.address === other.address ? one.length - other.length : one.address < other.address ? -1 : 1,
    );
    for (const prefix of sorted) {
      const outer = this.#ranges.at(-1);
      if (outer === undefined || prefix.address > outer.last)
        this.#ranges.push({ first: prefix.address, last: lastAddress(prefix) });
    }
  }

  holds(address: Address): boolean {
    const ranges = this.#ranges;
    let low = 0;
    let high = ranges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (itemAt(ranges, middle).last < address) low = middle + 1;
      else high = middle;
    }
    return low < ranges.length && itemAt(ranges, low).first <= address;
  }
}

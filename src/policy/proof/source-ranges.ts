import { itemAt } from '#arrays/read.js';
import type { Prefix, Range } from '#contracts/policy/policy-model.js';
import { mergedRanges } from '#policy/model/intervals.js';
import { lastAddress, ofFamily } from '#policy/model/ip-address.js';

/** A set of addresses, given by many prefixes. */
export class SourceRanges {
  readonly #ranges: readonly Range[];

  constructor(prefixes: readonly Prefix[]) {
    this.#ranges = mergedRanges(
      ofFamily(prefixes, 'ipv4').map((prefix) => ({ low: prefix.address, high: lastAddress(prefix) })),
    );
  }

  holds(address: number): boolean {
    const ranges = this.#ranges;
    let low = 0;
    let high = ranges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (itemAt(ranges, middle).high < address) low = middle + 1;
      else high = middle;
    }
    return low < ranges.length && itemAt(ranges, low).low <= address;
  }
}

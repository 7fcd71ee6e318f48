import { sharedWords } from '#arrays/shared-array.js';
import { ADDRESS_WORDS, compareWords, wordsOf } from '#contracts/policy/address-words.js';
import type { AddressClasses } from '#contracts/policy/program.js';

const WORDS = ADDRESS_WORDS.ipv6;

/** Returns the address classes with these first addresses, which must be ascending and begin with `::`. */
export function addressClasses(starts: readonly bigint[]): AddressClasses {
  const words = sharedWords(starts.length * WORDS);
  for (let number = 0; number < starts.length; number++) words.set(wordsOf(starts[number] ?? 0n), number * WORDS);
  return { starts: words };
}

/** Returns the number of the class of an address. */
export function classOf({ starts }: AddressClasses, address: bigint): number {
  const words = wordsOf(address);
  let low = 0;
  let high = starts.length / WORDS;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (compareWords(starts, middle * WORDS, words, 0, WORDS) <= 0) low = middle;
    else high = middle;
  }
  return low;
}

import { u32At } from '#arrays/read.js';
import { sharedWords } from '#arrays/shared-array.js';
import type { AddressClasses } from '#contracts/policy/program.js';

/** The number of words of an IPv6 address. */
export const ADDRESS_WORDS = 4;

/** Returns the address classes with these first addresses, which must be ascending and begin with `::`. */
export function addressClasses(starts: readonly bigint[]): AddressClasses {
  const words = sharedWords(starts.length * ADDRESS_WORDS);
  for (let number = 0; number < starts.length; number++)
    words.set(wordsOf(starts[number] ?? 0n), number * ADDRESS_WORDS);
  return { starts: words };
}

/** Returns the number of the class of an address. */
export function classOf({ starts }: AddressClasses, address: bigint): number {
  const words = wordsOf(address);
  let low = 0;
  let high = starts.length / ADDRESS_WORDS;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (isAtOrBefore(starts, middle, words)) low = middle;
    else high = middle;
  }
  return low;
}

/** Returns the words of an IPv6 address, the highest first. */
export function wordsOf(address: bigint): readonly [number, number, number, number] {
  const high = address >> 64n;
  const word = (half: bigint): number => Number(half & 0xffff_ffffn);
  return [word(high >> 32n), word(high), word(address >> 32n), word(address)];
}

function isAtOrBefore(starts: Uint32Array, number: number, words: readonly number[]): boolean {
  for (let at = 0; at < ADDRESS_WORDS; at++) {
    const start = u32At(starts, number * ADDRESS_WORDS + at);
    const word = words[at] ?? 0;
    if (start !== word) return start < word;
  }
  return true;
}

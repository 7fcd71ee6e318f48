import { u32At } from '#arrays/read.js';
import type { Address, AddressOf, Family } from './policy-model.js';

/**
 * The number of 32-bit words of an address. In this file, the most significant word of an address comes
 * first, so that words are sorted as addresses are. The memory of the datapath has the other order
 * (`src/addresses/memory-words.ts`).
 */
export const ADDRESS_WORDS: Readonly<Record<Family, number>> = { ipv4: 1, ipv6: 4 };

export function wordsOf(address: Address): readonly number[] {
  if (typeof address === 'number') return [address];
  const high = address >> 64n;
  const word = (half: bigint): number => Number(half & 0xffff_ffffn);
  return [word(high >> 32n), word(high), word(address >> 32n), word(address)];
}

/** Returns the address whose words begin at index `at`. */
export function addressAt<F extends Family>(words: Uint32Array, at: number, family: F): AddressOf<F>;
export function addressAt(words: Uint32Array, at: number, family: Family): Address {
  if (family === 'ipv4') return u32At(words, at);
  const half = (from: number): bigint => (BigInt(u32At(words, from)) << 32n) | BigInt(u32At(words, from + 1));
  return (half(at) << 64n) | half(at + 2);
}

/** An address as the key of a `Map` or a `Set`. */
export type AddressKey = number | string;

/**
 * Returns the key of an address. V8 hashes a bigint by its low 64 bits alone, which are 0 in all prefixes up
 * to /64. So a `Map` of bigints becomes slow, and one of texts does not.
 */
export function addressKey(address: Address): AddressKey {
  return typeof address === 'number' ? address : `0x${address.toString(16)}`;
}

/** Returns the address of a key: the inverse of `addressKey`. */
export function addressOfKey(key: AddressKey): Address {
  return typeof key === 'number' ? key : BigInt(key);
}

/**
 * Compares the addresses of `count` words at the indexes `at` and `otherAt`. Returns a number below 0 if the
 * first address is lower, above 0 if it is higher, and 0 if they are equal.
 */
export function compareWords(
  words: Uint32Array,
  at: number,
  others: Uint32Array | readonly number[],
  otherAt: number,
  count: number,
): number {
  for (let word = 0; word < count; word++) {
    const difference = u32At(words, at + word) - (others[otherAt + word] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}

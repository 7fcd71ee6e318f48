// The 32-bit words of an address in the memory of the datapath: the lowest word comes first. Tables that are
// sorted by addresses have the other order (`#contracts/policy/address-words.js`).
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Address, AddressOf, Family } from '#contracts/policy/policy-model.js';

const WORD_BITS = 32n;

/** Returns one of the 32-bit words of an address. Word 0 is the lowest. */
export function wordOfAddress(address: Address, word: number): number {
  if (typeof address === 'number') return address;
  return Number(BigInt.asUintN(32, address >> (BigInt(word) * WORD_BITS)));
}

/** Writes the words of an address, the lowest first. */
export function putAddress(into: Uint32Array, at: number, address: Address): void {
  if (typeof address === 'number') {
    into[at] = address;
    return;
  }
  for (let word = 0; word < ADDRESS_WORDS.ipv6; word++) into[at + word] = wordOfAddress(address, word);
}

/** Reads an address that `putAddress` has written. */
export function memoryAddressAt<F extends Family>(words: Uint32Array, at: number, family: F): AddressOf<F>;
export function memoryAddressAt(words: Uint32Array, at: number, family: Family): Address {
  if (family === 'ipv4') return words[at] ?? 0;
  let address = 0n;
  for (let word = ADDRESS_WORDS.ipv6 - 1; word >= 0; word--) {
    address = (address << WORD_BITS) | BigInt(words[at + word] ?? 0);
  }
  return address;
}

/** Whether one of the addresses in `words`, which are of the family of `address`, is `address`. */
export function hasAddress(words: Uint32Array, address: Address): boolean {
  if (typeof address === 'number') return words.includes(address);
  const wanted = new Uint32Array(ADDRESS_WORDS.ipv6);
  putAddress(wanted, 0, address);
  const lowest = wordOfAddress(address, 0);
  for (let at = words.indexOf(lowest); at >= 0; at = words.indexOf(lowest, at + 1)) {
    if (at % wanted.length === 0 && wanted.every((word, place) => words[at + place] === word)) return true;
  }
  return false;
}

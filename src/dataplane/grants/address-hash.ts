import { familyOf } from '#addresses/ip-address.js';
import { wordOfAddress } from '#addresses/memory-words.js';
import { u32At } from '#arrays/read.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { HEADER } from './grant-layout.js';

const WORD = 0x1_0000_0000;

/**
 * Returns the home line of an address: the cache line of the grant table where the search for the address
 * begins. Line numbers begin at 1; line 0 is the header. The hash factors in the header are random and
 * secret, so that an attacker cannot choose addresses that all fall on one line. Each 32-bit word of an
 * address has a factor of its own. The hash is the upper half of the sum of the products modulo 2^64.
 */
export function homeOf(header: Uint32Array, address: Address): number {
  let low = u32At(header, HEADER.addend);
  let hash = u32At(header, HEADER.addend + 1);
  const words = ADDRESS_WORDS[familyOf(address)];
  for (let word = 0; word < words; word++) {
    const factor = word === 0 ? HEADER.multiplier : HEADER.others + 2 * (word - 1);
    const [factorLow, factorHigh] = [u32At(header, factor), u32At(header, factor + 1)];
    const mixed = mix(wordOfAddress(address, word));
    const middle = mixed * (factorLow >>> 16);
    const product = mixed * (factorLow & 0xffff) + (middle % 0x1_0000) * 0x1_0000;
    low += product % WORD;
    hash += Math.floor(product / WORD) + Math.floor(middle / 0x1_0000) + (Math.imul(mixed, factorHigh) >>> 0);
    if (low >= WORD) {
      low -= WORD;
      hash++;
    }
  }
  const homes = u32At(header, HEADER.homes);
  hash >>>= 0;
  const upper = (hash >>> 16) * homes;
  const lower = (hash & 0xffff) * homes;
  return 1 + Math.floor((upper + Math.floor(lower / 0x1_0000)) / 0x1_0000);
}

/**
 * Scatters the words of consecutive addresses before the multiplication. The products of consecutive
 * addresses and a factor alone may fall on few cache lines.
 */
function mix(word: number): number {
  let bits = Math.imul(word ^ (word >>> 16), 0x85eb_ca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2_ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

/**
 * Writes the header of a new table of addresses: the hash factors, and the number of cache lines for
 * addresses. `random` has random 32-bit words: four for a table of IPv4 addresses, and for a table of IPv6
 * addresses six more.
 */
export function writeHeader(header: Uint32Array, homes: number, random: Uint32Array): void {
  header.set(random.subarray(0, 4), HEADER.multiplier);
  header.set(random.subarray(4), HEADER.others);
  header[HEADER.multiplier] = u32At(random, 0) | 1;
  header[HEADER.homes] = homes;
}

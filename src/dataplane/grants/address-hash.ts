import { u32At } from '#arrays/read.js';
import { HEADER } from './grant-layout.js';

/**
 * Returns the home line of an address: the cache line of the grant table where the search for the address
 * begins. Line numbers begin at 1; line 0 is the header. The hash factors in the header are random and
 * secret, so that an attacker cannot choose addresses that all fall on one line.
 */
export function homeOf(header: Uint32Array, given: number): number {
  const address = mixed(given);
  const [multiplierLow = 0, multiplierHigh = 0, addendLow = 0, addendHigh = 0, homes = 0] = header;
  const low = address * (multiplierLow & 0xffff);
  const middle = address * (multiplierLow >>> 16);
  const product = low + (middle % 0x1_0000) * 0x1_0000;
  const carried = (product % 0x1_0000_0000) + addendLow >= 0x1_0000_0000 ? 1 : 0;
  const high = Math.floor(product / 0x1_0000_0000) + Math.floor(middle / 0x1_0000);
  const hash = (high + (Math.imul(address, multiplierHigh) >>> 0) + addendHigh + carried) >>> 0;
  const upper = (hash >>> 16) * homes;
  const lower = (hash & 0xffff) * homes;
  return 1 + Math.floor((upper + Math.floor(lower / 0x1_0000)) / 0x1_0000);
}

/**
 * Scatters consecutive addresses before the multiplication. The products of consecutive addresses and a
 * factor alone may fall on few cache lines.
 */
function mixed(address: number): number {
  let bits = Math.imul(address ^ (address >>> 16), 0x85eb_ca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2_ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

/**
 * Writes the header of a new grant table: the hash factors, and the number of cache lines for addresses.
 * `random` has four random 32-bit words.
 */
export function writeHeader(header: Uint32Array, homes: number, random: Uint32Array): void {
  header.set(random.subarray(0, 4), HEADER.multiplier);
  header[HEADER.multiplier] = u32At(random, 0) | 1;
  header[HEADER.homes] = homes;
}

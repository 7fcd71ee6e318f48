import { HEADER } from './grant-layout.js';

/**
 * The line that an address hashes to, among `homes`. The factors are random and secret, so that chosen
 * addresses cannot fill one line.
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

/** Scatters neighbouring addresses: multiplied by a factor alone, they may fall on few lines. */
function mixed(address: number): number {
  let bits = Math.imul(address ^ (address >>> 16), 0x85eb_ca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2_ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

/** Writes the header of a new table. `random` is four words. */
export function writeHeader(header: Uint32Array, homes: number, random: Uint32Array): void {
  header.set(random.subarray(0, 4), HEADER.multiplier);
  header[HEADER.multiplier] = (random[0] ?? 0) | 1;
  header[HEADER.homes] = homes;
}

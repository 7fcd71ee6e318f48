import { randomFillSync } from 'node:crypto';
import { u16At } from '#arrays/read.js';

const numbers = new Uint16Array(4_096);
let left = 0;

/**
 * Returns an unpredictable 16-bit number, for DNS message ids and socket selection. Predictable ids would let
 * an attacker forge answers.
 */
export function random16(): number {
  if (left === 0) {
    randomFillSync(numbers);
    left = numbers.length;
  }
  return u16At(numbers, --left);
}

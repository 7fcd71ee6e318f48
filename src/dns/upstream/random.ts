import { randomFillSync } from 'node:crypto';

const numbers = new Uint16Array(4_096);
let left = 0;

/** A number of 16 bits that nobody can guess. */
export function random16(): number {
  if (left === 0) {
    randomFillSync(numbers);
    left = numbers.length;
  }
  return numbers[--left] ?? 0;
}

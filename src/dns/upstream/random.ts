import { randomFillSync } from 'node:crypto';

const numbers = new Uint16Array(4_096);
let left = 0;

/** An unpredictable 16-bit number. */
export function random16(): number {
  if (left === 0) {
    randomFillSync(numbers);
    left = numbers.length;
  }
  return numbers[--left] ?? 0;
}

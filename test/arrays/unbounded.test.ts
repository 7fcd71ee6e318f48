import { describe, expect, it } from 'vitest';
import { append } from '#arrays/append.js';
import { largest, smallest } from '#arrays/extremes.js';
import { table } from '#cli/output/table.js';

const MANY = 300_000;
const numbers = Array.from({ length: MANY }, (_, index) => (index * 7) % MANY);

describe('a list that is longer than the stack', () => {
  it('`append` appends to a list another list that has more items than fit on the call stack', () => {
    const list = [1];
    append(list, numbers);
    expect([list.length, list[1], list.at(-1)]).toEqual([MANY + 1, 0, numbers.at(-1)]);
  });

  it('`largest` and `smallest` return the largest and the smallest value of a list that has more items than fit on the call stack', () => {
    expect([largest(numbers), smallest(numbers)]).toEqual([MANY - 1, 0]);
    expect([largest([]), smallest([])]).toEqual([-Infinity, Infinity]);
  });

  it('`table` formats a list that has more items than fit on the call stack', () => {
    const lines = table(
      ['NUMBER', 'SAME'],
      numbers.map((number) => [`${number}`, `${number}`]),
    ).split('\n');
    expect([lines.length, lines[0], lines[2]]).toEqual([MANY + 2, 'NUMBER  SAME', '7       7']);
  });
});

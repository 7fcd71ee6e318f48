import { describe, expect, test } from 'vitest';
import { PATTERN } from '#dataplane/grants/grant-layout.js';
import { PatternTable } from '#dataplane/grants/pattern-table.js';

const memory = (patterns = 8): Uint32Array => new Uint32Array(patterns * PATTERN.words);

/**
 * Returns the numbers that a pattern has in the compiled policies of slot 0 and slot 1; 0 if the policy does
 * not have the pattern. `number` is the number of the pattern in the pattern table.
 */
function namesOf(words: Uint32Array, number: number | undefined): number[] {
  const at = (number ?? -1) * PATTERN.words + PATTERN.names;
  return [...words.subarray(at, at + 2)];
}

describe('the number of a pattern in the pattern table', () => {
  test('the number of a hostname pattern in the pattern table stays the same when another policy is put in force, unlike its number in the compiled policy', () => {
    const words = memory();
    const table = new PatternTable(words, []);
    table.fill(1, ['a', 'b']);
    table.activated([1]);
    const [a, b] = [table.numberOf('a'), table.numberOf('b')];
    expect([namesOf(words, a), namesOf(words, b)]).toEqual([
      [0, 1],
      [0, 2],
    ]);
    table.fill(0, ['c', 'b', 'a']);
    expect([namesOf(words, a), namesOf(words, b)]).toEqual([
      [3, 1],
      [2, 2],
    ]);
    table.activated([0]);
    expect([table.numberOf('a'), table.numberOf('b')]).toEqual([a, b]);
  });

  test('the number of a hostname pattern is reused only after the grants of the removed pattern are cleared and an RCU grace period is over', () => {
    const table = new PatternTable(memory(2), []);
    table.fill(1, ['a', 'b']);
    table.activated([1]);
    const a = table.numberOf('a') ?? -1;
    table.fill(0, ['b']);
    expect([table.isLive(a), table.hasRetired]).toEqual([true, false]);
    table.activated([0]);
    expect([table.isLive(a), table.hasRetired, table.numberOf('a')]).toEqual([false, true, undefined]);
    expect(table.shortage(['b', 'c'])).toBe(1);
    table.cleared();
    expect(table.shortage(['b', 'c'])).toBe(1);
    table.afterGrace();
    expect(table.shortage(['b', 'c'])).toBe(0);
    table.fill(1, ['b', 'c']);
    expect([table.numberOf('c'), table.isLive(a)]).toEqual([a, true]);
  });

  test('the number of a hostname pattern in the pattern table is freed if a policy with the pattern that is prepared (staged) but not in force is discarded', () => {
    const table = new PatternTable(memory(2), []);
    table.fill(1, ['a']);
    table.activated([1]);
    table.fill(0, ['a', 'b']);
    table.fill(0, ['a']);
    expect([table.numberOf('b'), table.hasRetired, table.count]).toEqual([undefined, true, 1]);
  });

  test('after a restart, the table of hostname patterns recovers the numbers for the policy in force, and not for a policy that was prepared (staged) but not in force', () => {
    const words = memory();
    const before = new PatternTable(words, []);
    before.fill(1, ['a', 'b']);
    before.activated([1]);
    before.fill(0, ['b', 'c']);
    const after = new PatternTable(words, [1]);
    expect(['a', 'b', 'c'].map((text) => after.numberOf(text))).toEqual([
      before.numberOf('a'),
      before.numberOf('b'),
      undefined,
    ]);
    expect(namesOf(words, after.numberOf('b'))).toEqual([0, 2]);
    expect(after.textOf(after.numberOf('a') ?? -1)).toBeUndefined();
    after.fill(0, ['a']);
    expect(after.textOf(after.numberOf('a') ?? -1)).toBe('a');
  });
});

import { describe, expect, test } from 'vitest';
import { checkProbes, positionAt } from './probe-checker.js';

/** The codes of two policies: both allow port 0. The old one also allows port 1, and the new one port 2. */
const OLD = 0b011;
const NEW = 0b101;
const commits = [
  { code: OLD, calledAt: 1_000 },
  { code: NEW, calledAt: 2_000 },
];
const tick = (from: number, allowed: number) => ({ node: 'n1', from, to: from + 1, allowed });

describe('checkProbes', () => {
  test('`checkProbes` reports no violation if probe packets get the verdicts of no policy, then of the old policy, then of the new policy', () => {
    const ticks = [
      tick(500, 0),
      tick(1_100, 0),
      tick(1_120, OLD),
      tick(2_100, OLD),
      tick(2_120, NEW),
      tick(3_000, NEW),
    ];
    expect(checkProbes(ticks, commits, [])).toEqual({
      thirds: [],
      positions: [
        { at: 500, position: 0 },
        { at: 1_120, position: 1 },
        { at: 2_120, position: 2 },
      ],
    });
  });

  test('`checkProbes` reports no violation if the policy changes between two probe packets of one round', () => {
    // Port 1 has the verdict of the old policy, and port 2 that of the new policy.
    expect(checkProbes([tick(1_500, OLD), tick(2_100, 0b111), tick(2_120, NEW)], commits, []).thirds).toEqual([]);
  });

  test('`checkProbes` reports no violation if a node never enforced one of the policies', () => {
    expect(checkProbes([tick(500, 0), tick(2_500, NEW)], commits, []).thirds).toEqual([]);
  });

  test.each([
    ['a verdict of neither policy', [tick(1_500, OLD), tick(2_100, 0b1001)]],
    ['the new policy before its write has begun', [tick(1_500, NEW)]],
    ['the old policy after the new one', [tick(2_100, NEW), tick(2_120, OLD)]],
    ['a change back within one round', [tick(2_100, NEW), tick(2_120, NEW | OLD)]],
    ['no policy after the first one', [tick(1_500, OLD), tick(1_520, 0)]],
    ['an allowed probe before the first policy', [tick(500, 0b1)]],
  ])(
    '`checkProbes` reports probe packets with verdicts that the order of the policies does not permit: %s',
    (_, ticks) => {
      expect(checkProbes(ticks, commits, []).thirds).not.toEqual([]);
    },
  );

  test('`checkProbes` returns the time and port of a verdict that no possible policy gives, and the policies that were possible then', () => {
    expect(checkProbes([tick(1_500, OLD), tick(1_520, OLD | 0b100)], commits, []).thirds).toEqual([
      { node: 'n1', at: 1_520, port: 2, allowed: true, from: 1, to: 1 },
    ]);
  });

  test('`checkProbes` reports a verdict of the old policy on a node that has acknowledged the new policy', () => {
    const ticks = [tick(2_100, OLD), tick(2_600, OLD)];
    expect(checkProbes(ticks, commits, []).thirds).toEqual([]);
    expect(checkProbes(ticks, commits, [{ at: 2_500, position: 2 }]).thirds).toMatchObject([
      { at: 2_600, port: 1 },
      { at: 2_600, port: 2 },
    ]);
  });
});

describe('positionAt', () => {
  test('`positionAt` returns from a list of times and policy positions the last position at or before a given time', () => {
    const positions = [
      { at: 10, position: 0 },
      { at: 20, position: 3 },
    ];
    expect([5, 10, 19, 20, 30].map((time) => positionAt(positions, time))).toEqual([null, 0, 0, 3, 3]);
  });
});

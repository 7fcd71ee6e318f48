import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Random, seedOf } from '#test/seed.js';
import { checkHistory, type Operation } from './history-checker.js';
import { INITIAL, simulatedHistory } from './simulated-register.js';

type Window = readonly [call: number, end: number];

const FOREVER = Number.POSITIVE_INFINITY;

function read(process: string, value: string, [call, end]: Window): Operation {
  return { process, kind: 'read', call, return: end, value, expected: null, outcome: 'ok' };
}

function write(process: string, value: string, [call, end]: Window, more: Partial<Operation> = {}): Operation {
  const outcome = end === FOREVER ? 'unknown' : 'ok';
  return { process, kind: 'write', call, return: end, value, expected: null, outcome, ...more };
}

describe('checkHistory, linearizable histories', () => {
  test.each<[name: string, history: Operation[]]>([
    ['an empty history', []],
    ['reads of the initial value', [read('a', INITIAL, [0, 1]), read('b', INITIAL, [0, 3])]],
    [
      'a chain of compare-and-swaps',
      [
        write('a', 'v1', [0, 1], { expected: INITIAL }),
        write('b', 'v2', [2, 3], { expected: 'v1' }),
        read('a', 'v2', [4, 5]),
      ],
    ],
    [
      'two orders of concurrent writes, as the reads need them',
      [write('a', 'v1', [0, 10]), write('b', 'v2', [0, 10]), read('c', 'v2', [2, 3]), read('c', 'v1', [4, 5])],
    ],
    ['a read of a value whose write has not returned', [write('a', 'v1', [0, 10]), read('b', 'v1', [1, 2])]],
    [
      'an older value in a read that began before the write returned',
      [write('a', 'v1', [0, 10]), read('b', 'v1', [1, 2]), read('c', INITIAL, [0, 20])],
    ],
    ['operations that touch in one moment, in either order', [write('a', 'v1', [0, 5]), read('b', INITIAL, [5, 6])]],
    ['a failed write that no read saw', [write('a', 'v1', [0, 1], { outcome: 'failed' }), read('b', INITIAL, [2, 3])]],
    [
      'a failed write that is repeated with the same value',
      [write('a', 'v1', [0, 1], { outcome: 'failed' }), write('a', 'v1', [2, 3]), read('b', 'v1', [4, 5])],
    ],
    [
      'one of two compare-and-swaps from the same base if the other failed',
      [
        write('a', 'v1', [0, 5], { expected: INITIAL }),
        write('b', 'v2', [0, 5], { expected: INITIAL, outcome: 'failed' }),
        read('c', 'v1', [6, 7]),
      ],
    ],
    [
      'an unknown write that takes effect late',
      [write('a', 'v1', [0, FOREVER]), read('b', INITIAL, [50, 60]), read('b', 'v1', [70, 80])],
    ],
    [
      'an unknown write that never takes effect',
      [write('a', 'v1', [0, FOREVER]), write('b', 'v2', [50, 60]), read('b', 'v2', [70, 80])],
    ],
    [
      'an unknown compare-and-swap on which another one builds',
      [
        write('a', 'v1', [0, FOREVER], { expected: INITIAL }),
        write('b', 'v2', [1, FOREVER], { expected: 'v1' }),
        read('c', INITIAL, [2, 3]),
        read('c', 'v2', [4, 5]),
      ],
    ],
    [
      'a read whose outcome is unknown, with any value',
      [{ ...read('a', 'v9', [0, FOREVER]), outcome: 'unknown' }, read('b', INITIAL, [2, 3])],
    ],
  ])(
    'the linearizability check `checkHistory` accepts a linearizable history of reads and writes: %s',
    (_, history) => {
      expect(checkHistory(history, INITIAL)).toEqual({ linearizable: true });
    },
  );
});

describe('checkHistory, other histories', () => {
  test.each<[name: string, blamed: number, history: Operation[]]>([
    [
      'a stale read',
      2,
      [write('a', 'v1', [0, 1]), write('a', 'v2', [2, 3]), read('b', 'v1', [4, 5]), read('b', 'v2', [6, 7])],
    ],
    ['a lost write', 1, [write('a', 'v1', [0, 1]), read('b', INITIAL, [2, 3]), read('b', INITIAL, [4, 5])]],
    ['a failed write that a read saw', 1, [write('a', 'v1', [0, 1], { outcome: 'failed' }), read('b', 'v1', [2, 3])]],
    ['a value that no operation wrote', 0, [read('b', 'v1', [2, 3])]],
    [
      'two successful compare-and-swaps from the same base',
      1,
      [write('a', 'v1', [0, 5], { expected: INITIAL }), write('b', 'v2', [0, 6], { expected: INITIAL })],
    ],
    [
      'a read that goes back, during both writes',
      3,
      [write('a', 'v1', [0, 20]), write('b', 'v2', [0, 20]), read('c', 'v1', [1, 2]), read('c', INITIAL, [3, 4])],
    ],
    [
      'three reads that change between two concurrent writes',
      4,
      [
        write('a', 'v1', [0, 20]),
        write('b', 'v2', [0, 20]),
        read('c', 'v1', [1, 2]),
        read('c', 'v2', [3, 4]),
        read('d', 'v1', [5, 6]),
      ],
    ],
    ['an unknown write that a read saw before its call', 1, [write('a', 'v1', [5, FOREVER]), read('b', 'v1', [1, 2])]],
    [
      'an unknown write that disappears after a read saw it',
      2,
      [write('a', 'v1', [0, FOREVER]), read('b', 'v1', [1, 2]), read('b', INITIAL, [3, 4])],
    ],
    [
      'an unknown write that takes effect twice',
      4,
      [
        write('a', 'v1', [0, FOREVER]),
        read('b', 'v1', [1, 2]),
        write('c', 'v2', [3, 4]),
        read('b', 'v2', [5, 6]),
        read('b', 'v1', [7, 8]),
      ],
    ],
    [
      'an unknown compare-and-swap whose base is gone',
      3,
      [
        write('a', 'v1', [0, 1]),
        write('b', 'v2', [2, FOREVER], { expected: INITIAL }),
        read('c', 'v1', [3, 4]),
        read('c', 'v2', [5, 6]),
      ],
    ],
    [
      'two compare-and-swaps, each with the value of the other as its base',
      0,
      [write('a', 'v1', [0, 5], { expected: 'v2' }), write('b', 'v2', [0, 6], { expected: 'v1' })],
    ],
  ])(
    'the linearizability check `checkHistory` rejects a history of reads and writes that is not linearizable: %s',
    (_, blamed, history) => {
      expect(checkHistory(history, INITIAL)).toMatchObject({ linearizable: false, operation: history[blamed] });
    },
  );

  test('the linearizability check `checkHistory` names the longest prefix that can be linearised when it rejects a stale read', () => {
    const history = [
      ...[write('a', 'v1', [0, 1]), write('a', 'v2', [2, 3], { expected: 'v1' }), read('a', 'v2', [4, 5])],
      ...[write('a', 'v3', [6, 7.0006]), read('b', 'v2', [8, 9]), read('b', 'v3', [10, 11])],
    ];
    expect(checkHistory(history, INITIAL)).toEqual({
      linearizable: false,
      operation: history[4],
      detail:
        'no moment is left for the read of v2 by b from 8 to 9 ms: the longest linearised prefix has 4 operations ' +
        '(…, write of v2 after v1 by a from 2 to 3 ms, read of v2 by a from 4 to 5 ms, ' +
        'write of v3 by a from 6 to 7.001 ms) and ends with the value v3',
    });
  });
});

describe('checkHistory, invalid histories', () => {
  test.each<[name: string, history: Operation[], message: RegExp]>([
    ['two writes have the same value', [write('a', 'v1', [0, 1]), write('b', 'v1', [2, FOREVER])], /the same value/],
    ['a write has the initial value', [write('a', INITIAL, [0, 1])], /the initial value/],
    ['an operation returns before its call', [write('a', 'v1', [2, 1])], /wrong times/],
    ['a time is missing', [write('a', 'v1', [Number.NaN, 1])], /wrong times/],
    ['a successful operation does not return', [read('a', 'v1', [0, FOREVER])], /wrong times/],
    ['an unknown operation returns', [write('a', 'v1', [0, 1], { outcome: 'unknown' })], /wrong times/],
  ])(
    'the linearizability check `checkHistory` throws a RangeError if the history is not valid: %s',
    (_, history, message) => {
      expect(() => checkHistory(history, INITIAL)).toThrow(message);
      expect(() => checkHistory(history, INITIAL)).toThrow(RangeError);
    },
  );
});

/**
 * Decides whether a short history is linearizable: tries every order, and every choice of unknown writes that
 * take effect. Operations of `open` count as unknown.
 */
function isLinearizableByTrial(history: readonly Operation[], open: (operation: Operation) => boolean): boolean {
  const isOk = (operation: Operation): boolean => operation.outcome === 'ok' && !open(operation);
  const tryFrom = (left: readonly Operation[], state: string): boolean =>
    !left.some(isOk) ||
    left.some((next) => {
      if (left.some((other) => isOk(other) && other.return < next.call)) return false;
      if ((next.kind === 'read' ? next.value : (next.expected ?? state)) !== state) return false;
      return tryFrom(
        left.filter((other) => other !== next),
        next.value,
      );
    });
  return tryFrom(
    history.filter((operation) => isOk(operation) || (operation.kind === 'write' && operation.outcome !== 'failed')),
    INITIAL,
  );
}

/** Returns a short history of random operations, which is linearizable or not. */
function arbitraryHistory(random: Random): Operation[] {
  const size = random.between(2, 7);
  const values = Array.from({ length: random.between(2, 5) }, (_, number) => `v${number}`);
  const unused = values.slice(1);
  return Array.from({ length: size }, (_, number) => {
    const call = random.below(12);
    const value = random.chance(0.5) ? unused.shift() : undefined;
    const outcome = random.pick(['ok', 'ok', 'ok', 'unknown', 'failed'] as const);
    const end = outcome === 'unknown' ? FOREVER : call + random.below(8);
    const process = `p${number}`;
    if (value === undefined) return { ...read(process, random.pick(values), [call, end]), outcome };
    return write(process, value, [call, end], { outcome, expected: random.chance(0.5) ? random.pick(values) : null });
  });
}

test('the linearizability check `checkHistory` gives 4,000 short random histories the same verdict as a search through all possible orders of the operations', () => {
  const seed = seedOf(31_007);
  const counts = { good: 0, bad: 0 };
  for (let number = 0; number < 4_000; number++) {
    const history = arbitraryHistory(new Random(seed + number));
    const verdict = checkHistory(history, INITIAL);
    const expected = isLinearizableByTrial(history, () => false);
    expect({ seed, number, linearizable: verdict.linearizable }).toEqual({ seed, number, linearizable: expected });
    counts[expected ? 'good' : 'bad']++;
    if (verdict.linearizable) continue;
    const { operation } = verdict;
    const withIt = isLinearizableByTrial(history, (other) => other.return > operation.return);
    const withoutIt = isLinearizableByTrial(history, (other) => other.return >= operation.return);
    expect({ seed, number, withIt, withoutIt }).toEqual({ seed, number, withIt: false, withoutIt: true });
  }
  expect(Math.min(counts.good, counts.bad)).toBeGreaterThan(1_000);
});

const SHAPES = [
  { processes: 1, operations: 300, writes: 0.5 },
  { processes: 3, operations: 300, writes: 0.2 },
  { processes: 8, operations: 400, writes: 0.5 },
  { processes: 8, operations: 400, writes: 0.9 },
];

describe.each(SHAPES)('checkHistory with $processes processes and a share of $writes writes', (shape) => {
  const seed = seedOf(90_210);
  const rounds = Array.from({ length: 25 }, (_, number) => {
    const random = new Random(seed + number);
    return { number, random, history: simulatedHistory(random, shape) };
  });

  test('the linearizability check `checkHistory` accepts random histories of a correct register', () => {
    for (const { number, history } of rounds)
      expect({ seed, number, verdict: checkHistory(history, INITIAL) }).toEqual({
        seed,
        number,
        verdict: { linearizable: true },
      });
  });

  test('the linearizability check `checkHistory` rejects a random history in which one read is changed to an older value', () => {
    for (const { number, random, history } of rounds) {
      const stale = withStaleRead(random, history);
      const verdict = checkHistory(stale, INITIAL);
      expect({ seed, number, linearizable: verdict.linearizable }).toEqual({ seed, number, linearizable: false });
    }
  });

  test('the linearizability check `checkHistory` rejects a history without an acknowledged write at or before the first operation that saw the written value', () => {
    for (const { number, random, history } of rounds) {
      const ok = history.filter(({ outcome }) => outcome === 'ok');
      const observersOf = ({ value }: Operation): Operation[] =>
        ok.filter((other) => (other.kind === 'read' ? other.value : other.expected) === value);
      const dropped = random.pick(ok.filter((each) => each.kind === 'write' && observersOf(each).length > 0));
      const [first] = observersOf(dropped).toSorted((left, right) => left.return - right.return);
      const verdict = checkHistory(
        history.filter((each) => each !== dropped),
        INITIAL,
      );
      const blamedAt = verdict.linearizable ? Number.NaN : verdict.operation.return;
      // Another operation may return earlier and observe a compare-and-swap that saw the value.
      expect({ seed, number, isFound: blamedAt <= (first?.return ?? 0) }).toEqual({ seed, number, isFound: true });
    }
  });
});

/** Changes a read to the value of a write that a later write had replaced before the read began. */
function withStaleRead(random: Random, history: readonly Operation[]): Operation[] {
  const ok = history.filter(({ outcome }) => outcome === 'ok');
  const writesBefore = (time: number): Operation[] => ok.filter((each) => each.kind === 'write' && each.return < time);
  const replacedBefore = (time: number): Operation[] =>
    writesBefore(Math.max(...writesBefore(time).map(({ call }) => call), Number.NEGATIVE_INFINITY));
  const changed = random.pick(ok.filter((each) => each.kind === 'read' && replacedBefore(each.call).length > 0));
  const { value } = random.pick(replacedBefore(changed.call).slice(-3));
  return history.map((each) => (each === changed ? { ...each, value } : each));
}

describe('checkHistory, 20,000 operations', () => {
  const shape = { processes: 8, operations: 20_000, writes: 0.4 };
  const history = simulatedHistory(new Random(1), shape);
  const end = Math.max(...history.map((each) => (each.outcome === 'unknown' ? 0 : each.return)));

  // Measure processor time: wall-clock time would depend on the other processes of the machine.
  let usedBefore: NodeJS.CpuUsage;
  beforeEach(() => {
    usedBefore = process.cpuUsage();
  });
  afterEach(() => {
    const { user, system } = process.cpuUsage(usedBefore);
    expect((user + system) / 1_000).toBeLessThan(5_000);
  });

  test('the linearizability check `checkHistory` accepts a linearizable history of 20,000 operations within 5 s of CPU time', () => {
    expect(history).toHaveLength(20_000);
    expect(checkHistory(history, INITIAL)).toEqual({ linearizable: true });
  });

  test('the linearizability check `checkHistory` rejects a history of 20,000 operations whose last read is stale within 5 s of CPU time', () => {
    const replaced = history.find((each) => each.kind === 'write' && each.outcome === 'ok');
    const stale = read('late', replaced?.value ?? '', [end + 1, end + 2]);
    expect(checkHistory([...history, stale], INITIAL)).toMatchObject({ linearizable: false, operation: stale });
  });

  test('the linearizability check `checkHistory` decides a history of 20,000 operations within 5 s of CPU time, even if one operation lasts for half of the history', () => {
    const slow = [write('slow', 'v-slow', [end / 4, (end * 3) / 4]), read('slow', 'v-slow', [end, end + 1])];
    const late = write('later', 'v-later', [end, FOREVER]);
    expect(checkHistory([...history, ...slow.slice(0, 1), late], INITIAL)).toEqual({ linearizable: true });
    expect(checkHistory([...history, ...slow, late], INITIAL)).toMatchObject({ linearizable: false });
  });
});

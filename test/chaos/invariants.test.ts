import { describe, expect, test } from 'vitest';
import type { Operation } from './history-checker.js';
import { acknowledgedLost, refusedApplied, unequal, wentBack } from './invariants.js';

function write(value: string, outcome: Operation['outcome'] = 'ok'): Operation {
  const end = outcome === 'unknown' ? Number.POSITIVE_INFINITY : 1;
  return { process: 'p1', kind: 'write', call: 0, return: end, value, expected: null, outcome };
}

describe('acknowledgedLost', () => {
  test('`acknowledgedLost` returns the acknowledged writes that are not in the final history', () => {
    const writes = [write('v1'), write('v2'), write('v3')];
    expect(acknowledgedLost(writes, ['v3', 'v1'])).toEqual([write('v2')]);
  });

  test('`acknowledgedLost` returns nothing if all acknowledged writes are in the final history', () => {
    expect(acknowledgedLost([write('v1'), write('v2')], new Set(['v0', 'v1', 'v2']))).toEqual([]);
  });

  test('`acknowledgedLost` ignores reads, failed writes and writes with an unknown outcome', () => {
    const read: Operation = { ...write('v9'), kind: 'read' };
    expect(acknowledgedLost([read, write('v1', 'failed'), write('v2', 'unknown')], [])).toEqual([]);
  });
});

describe('refusedApplied', () => {
  test('`refusedApplied` returns only the refused writes that are in the final history', () => {
    const writes = [write('v1', 'failed'), write('v2', 'failed'), write('v3'), write('v4', 'unknown')];
    expect(refusedApplied(writes, ['v2', 'v3', 'v4'])).toEqual([write('v2', 'failed')]);
  });
});

describe('wentBack', () => {
  test('`wentBack` returns no decrease if the generation and the sequence number of a node increase or stay equal', () => {
    const observations = [
      { at: 0, generation: 1, sequence: 7 },
      { at: 10, generation: 1, sequence: 8 },
      { at: 20, generation: 4, sequence: 8 },
    ];
    expect(wentBack(new Map([['n1', observations]]))).toEqual([]);
  });

  test('`wentBack` returns no decrease if only another node has a lower generation or sequence number', () => {
    const observationOf = (generation: number) => [{ at: 0, generation, sequence: 1 }];
    expect(
      wentBack(
        new Map([
          ['n1', observationOf(9)],
          ['n2', observationOf(3)],
          ['n3', []],
        ]),
      ),
    ).toEqual([]);
  });

  test('`wentBack` returns each decrease of a generation or sequence number with its node and time', () => {
    const observations = new Map([
      ['n1', [{ at: 0, generation: 1, sequence: 1 }]],
      [
        'n2',
        [
          { at: 0, generation: 5, sequence: 9 },
          { at: 10, generation: 3, sequence: 9 },
          { at: 20, generation: 4, sequence: 9 },
          { at: 30, generation: 2, sequence: 0 },
        ],
      ],
    ]);
    expect(wentBack(observations)).toEqual([
      { node: 'n2', counter: 'generation', at: 10, from: 5, to: 3 },
      { node: 'n2', counter: 'generation', at: 30, from: 4, to: 2 },
      { node: 'n2', counter: 'sequence', at: 30, from: 9, to: 0 },
    ]);
  });
});

describe('unequal', () => {
  test('`unequal` returns no difference if the states of all nodes are equal, whatever the order of their fields', () => {
    const nodes = new Map([
      ['n1', { generation: 3, settings: { mode: 'on', levels: [1, 2] } }],
      ['n2', { settings: { levels: [1, 2], mode: 'on' }, generation: 3 }],
    ]);
    expect(unequal(nodes)).toEqual([]);
    expect(unequal(new Map())).toEqual([]);
  });

  test('`unequal` returns each field of the state that differs between nodes, with the values of all nodes', () => {
    const nodes = new Map([
      ['n1', { sequence: 8, generation: 3, tokens: ['a'] }],
      ['n2', { sequence: 8, generation: 3, tokens: ['a', 'b'] }],
      ['n3', { sequence: 8, generation: 2, tokens: ['a'] }],
    ]);
    expect(unequal(nodes)).toEqual([
      {
        field: 'generation',
        values: new Map([
          ['n1', 3],
          ['n2', 3],
          ['n3', 2],
        ]),
      },
      {
        field: 'tokens',
        values: new Map([
          ['n1', ['a']],
          ['n2', ['a', 'b']],
          ['n3', ['a']],
        ]),
      },
    ]);
  });

  test('`unequal` returns a field that the state of one node lacks', () => {
    const nodes = new Map<string, Record<string, unknown>>([
      ['n1', { digest: undefined }],
      ['n2', {}],
    ]);
    expect(unequal(nodes)).toEqual([{ field: 'digest', values: new Map([['n1', undefined]]) }]);
  });
});

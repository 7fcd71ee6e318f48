import { describe, expect, test } from 'vitest';
import type { Fault } from './fault-schedule.js';
import { type EndedWrite, unexplained } from './refusals.js';

const write = (to: number, code = 'store_unavailable'): EndedWrite => ({
  node: 'n1',
  code,
  detail: '',
  from: to - 10,
  to,
});
const span = (fault: Fault, from = 1_000) => ({ fault, from, to: from + fault.forMs });
const times = { at: 0, forMs: 4_000 };

describe('unexplained', () => {
  test('`unexplained` (failed writes that no injected fault explains) returns all failed writes if there was no fault, except writes that lost a race', () => {
    const failed = [write(500), write(600, 'precondition_failed'), write(700, 'activation_timeout')];
    expect(unexplained(failed, [])).toEqual([failed[0], failed[2]]);
  });

  test.each<[string, Fault, number]>([
    ['3 s after the end of a slow disk', { ...times, kind: 'slow_member', target: 'm1' }, 8_000],
    ['5 s after the end of a fault of its node', { ...times, kind: 'stop_node', target: 'n1' }, 10_000],
    ['5 s after the end of a fault of all members', { ...times, kind: 'kill_all_members', target: null }, 10_000],
  ])(
    '`unexplained` (failed writes that no injected fault explains) omits a failed write from the start of a fault until %s',
    (_, fault, until) => {
      const outside = [write(999), write(until + 1)];
      expect(unexplained([write(1_000), write(until), ...outside], [span(fault)])).toEqual(outside);
    },
  );

  test('`unexplained` (failed writes that no injected fault explains) omits a failed write within 3 s after the start or the end of a fault of one member', () => {
    const outside = [write(999), write(4_001), write(4_999), write(8_001)];
    const inside = [write(1_000), write(4_000), write(5_000), write(8_000)];
    const cut = span({ ...times, kind: 'cut_client', target: 'm1' });
    expect(unexplained([...inside, ...outside], [cut])).toEqual(outside);
  });

  test('`unexplained` (failed writes that no injected fault explains) returns a failed write during a fault of another node', () => {
    const failed = [write(1_500)];
    expect(unexplained(failed, [span({ ...times, kind: 'kill_node', target: 'n2' })])).toEqual(failed);
  });
});

import { describe, expect, test } from 'vitest';
import { type Fault, faultSchedule, QUIET_MS, RECOVERY_MS, STEP_WAIT_MS } from './fault-schedule.js';
import { WRITE_STEPS } from './write-steps.js';

const MEMBERS = ['m1', 'm2', 'm3'];
const NODES = ['n1', 'n2', 'n3'];
const SEEDS = Array.from({ length: 200 }, (_, number) => number + 1);

function scheduleOf(seed: number, more: Partial<Parameters<typeof faultSchedule>[0]> = {}): Fault[] {
  return faultSchedule({ seed, durationMs: 60_000, members: MEMBERS, nodes: NODES, ...more });
}

const ALL_MEMBERS: readonly Fault['kind'][] = ['kill_all_members', 'cut_all_responses_at', 'lose_commit_at'];
/** Returns the latest end of a fault. */
const endOf = (fault: Fault): number => fault.at + ('step' in fault ? STEP_WAIT_MS : 0) + fault.forMs;

/** Returns the names of `targets` that have a fault at the start of `fault` or still recover from one. */
function faultyAt({ at }: Fault, faults: readonly Fault[], targets: readonly string[], recoveryMs: number): string[] {
  return faults
    .filter((other) => other.at <= at && at < endOf(other) + recoveryMs)
    .flatMap(({ kind, target }) => (ALL_MEMBERS.includes(kind) && targets !== NODES ? targets : [target ?? '']))
    .filter((target) => targets.includes(target));
}

describe('faultSchedule', () => {
  test('`faultSchedule` (the random faults of a test run) returns the same faults for the same seed, and other faults for another seed', () => {
    expect(scheduleOf(7)).toEqual(scheduleOf(7));
    expect(scheduleOf(7)).not.toEqual(scheduleOf(8));
  });

  test('`faultSchedule` sorts the faults by start time, and ends each fault at least 5 s before the end of the run', () => {
    for (const seed of SEEDS) {
      const faults = scheduleOf(seed, { durationMs: 20_000 });
      expect(faults.length).toBeGreaterThan(5);
      expect(faults).toEqual(faults.toSorted((left, right) => left.at - right.at));
      for (const fault of faults) {
        expect(fault.at).toBeGreaterThan(0);
        expect(endOf(fault)).toBeLessThanOrEqual(20_000 - QUIET_MS);
      }
    }
  });

  test('`faultSchedule` gives each fault a target that its kind allows, and a duration', () => {
    for (const { kind, target, forMs } of SEEDS.flatMap((seed) => scheduleOf(seed))) {
      const isWhole = kind === 'compact' || kind === 'collect_at' || ALL_MEMBERS.includes(kind);
      expect(isWhole ? [null] : /_node$|_writer_at$/.test(kind) ? NODES : MEMBERS).toContain(target);
      if (kind === 'compact' || kind === 'collect_at') expect(forMs).toBe(0);
      else expect(forMs).toBeGreaterThanOrEqual(300);
    }
  });

  test.each([
    [3, 1],
    [4, 1],
    [5, 2],
  ])(
    '`faultSchedule` makes of %i etcd members at most %i (a minority) faulty at once, except all together',
    (size, minority) => {
      const members = Array.from({ length: size }, (_, number) => `m${number + 1}`);
      let most = 0;
      for (const seed of SEEDS) {
        const faults = scheduleOf(seed, { members });
        for (const fault of faults) {
          const faulty = faultyAt(fault, faults, members, RECOVERY_MS);
          expect(new Set(faulty).size).toBe(faulty.length);
          if (ALL_MEMBERS.includes(fault.kind)) expect(faulty).toEqual(members);
          else if (faulty.length < size) most = Math.max(most, faulty.length);
        }
      }
      expect(most).toBe(minority);
    },
  );

  test('`faultSchedule` starts no fault of a single member while all members have a fault or recover from it', () => {
    for (const seed of SEEDS) {
      const faults = scheduleOf(seed);
      for (const all of faults.filter(({ kind }) => ALL_MEMBERS.includes(kind))) {
        const during = faults.filter(({ at }) => at > all.at && at < endOf(all) + RECOVERY_MS);
        expect(during.filter(({ target }) => target !== null && MEMBERS.includes(target))).toEqual([]);
      }
    }
  });

  test('`faultSchedule` never makes all nodes faulty at once if there are several, and gives a node one fault at a time', () => {
    let most = 0;
    for (const seed of SEEDS) {
      const faults = scheduleOf(seed);
      for (const fault of faults) {
        const faulty = faultyAt(fault, faults, NODES, 0);
        expect(new Set(faulty).size).toBe(faulty.length);
        most = Math.max(most, faulty.length);
      }
    }
    expect(most).toBe(2);
    expect(scheduleOf(1, { nodes: ['n1'] }).map(({ target }) => target)).toContain('n1');
  });

  test('`faultSchedule` returns every kind of fault in 20 runs of 60 s, and only few etcd compactions or kills of all members', () => {
    const kinds = SEEDS.slice(0, 20).flatMap((seed) => scheduleOf(seed).map(({ kind }) => kind));
    expect([...new Set(kinds)].sort()).toEqual([
      ...['collect_at', 'compact', 'cut_all_responses_at', 'cut_client', 'cut_peer', 'cut_responses'],
      ...['kill_all_members', 'kill_member', 'kill_node', 'kill_writer_at'],
      ...['lose_commit_at', 'slow_member', 'stop_member', 'stop_node', 'stop_writer_at'],
    ]);
    const shareOf = (wanted: Fault['kind']): number => kinds.filter((kind) => kind === wanted).length / kinds.length;
    expect(shareOf('kill_all_members')).toBeLessThan(0.05);
    expect(shareOf('compact')).toBeLessThan(0.25);
  });

  test('`faultSchedule` returns faults that kill and faults that stop the writing node at each step of a policy write', () => {
    const faults = SEEDS.slice(0, 20)
      .flatMap((seed) => scheduleOf(seed))
      .filter((fault) => 'step' in fault);
    for (const kind of ['kill_writer_at', 'stop_writer_at'])
      for (const step of WRITE_STEPS)
        expect(faults.filter((fault) => fault.kind === kind && fault.step === step).length).toBeGreaterThan(2);
  });

  test('`faultSchedule` returns only faults of the given nodes and etcd members', () => {
    for (const seed of SEEDS) {
      const ofMembers = scheduleOf(seed, { nodes: [] }).map(({ kind }) => kind);
      const ofNodes = scheduleOf(seed, { members: [] }).map(({ kind }) => kind);
      const ofOneMember = scheduleOf(seed, { members: ['m1'], nodes: [] }).map(({ kind }) => kind);
      expect(ofMembers.filter((kind) => /_node$|_at$/.test(kind))).toEqual([]);
      expect(ofNodes.filter((kind) => !kind.endsWith('_node'))).toEqual([]);
      expect(ofOneMember.filter((kind) => kind !== 'compact' && kind !== 'kill_all_members')).toEqual([]);
    }
  });

  test('`faultSchedule` throws a RangeError if the run is too short for a fault', () => {
    expect(() => scheduleOf(1, { durationMs: 6_000 })).toThrow(RangeError);
    expect(() => scheduleOf(1, { durationMs: 10_000 })).not.toThrow();
  });
});

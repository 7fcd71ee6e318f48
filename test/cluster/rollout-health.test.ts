import { describe, expect, test } from 'vitest';
import { CanaryHealth } from '#cluster/rollout/canary-health.js';
import { FaultTracker, healthOf } from '#cluster/rollout/rollout-health.js';

const FAULT = 'it is not ready (policy_ready)';

describe('the fault tracker of a roll-out', () => {
  test('`healthOf` reports a node of a staged roll-out as faulty if the node is no member or has not reported its health', () => {
    const reports = new Map([
      ['a', null],
      ['b', FAULT],
      ['d', null],
    ]);
    expect(healthOf(['a', 'b', 'c', 'd'], { members: ['a', 'b', 'c'], reports })).toEqual([
      { node: 'a', fault: null },
      { node: 'b', fault: FAULT },
      { node: 'c', fault: 'it does not report its health' },
      { node: 'd', fault: 'it is not a member of the cluster' },
    ]);
  });

  test('`FaultTracker` returns a node whose fault has lasted 10 s, and no node with a shorter fault', () => {
    const tracker = new FaultTracker();
    const at = (ms: number, fault: string | null) => tracker.persistentFault([{ node: 'a', fault }], ms)?.node ?? null;
    expect([at(0, FAULT), at(9_000, FAULT), at(9_500, null), at(10_500, FAULT), at(20_400, FAULT)]).toEqual(
      Array.from({ length: 5 }, () => null),
    );
    expect(at(20_500, FAULT)).toBe('a');
  });
});

describe('the health that a node reports', () => {
  /**
   * Returns the faults of a node that denies `usual` packets a second for ten minutes, and then `rates[i]` in
   * the second `i`.
   */
  async function faults(
    usual: number,
    rates: readonly number[],
    { failedChecks = [] as string[], generation = 42 } = {},
  ) {
    let now = 0;
    let denied = 0;
    const health = new CanaryHealth({
      generation: () => generation,
      failedChecks: () => failedChecks,
      denied: async () => denied,
      now: () => now,
    });
    for (let sample = 0; sample <= 60; sample++, now += 10_000, denied += usual * 10) await health.sample();
    const fault = health.observe(42);
    await fault();
    const found: (string | null)[] = [];
    for (const rate of rates) {
      now += 1_000;
      denied += rate;
      found.push(await fault());
    }
    return found;
  }

  test('the health report of a node has a fault if the node usually denies few packets and then denies more than 10 a second', async () => {
    expect(await faults(1, [10, 11])).toEqual([null, 'it denies more than 10 packets or requests a second']);
  });

  test('the health report of a node has a fault if it denies more than 3 times its median rate of the last ten minutes', async () => {
    expect(await faults(100, [300, 301])).toEqual([null, 'it denies more than 300 packets or requests a second']);
  });

  test('the health report of a node has a fault while the counters of the node cannot be read', async () => {
    const denied = () => Promise.reject(new Error('the thread of the datapath has ended'));
    const health = new CanaryHealth({ generation: () => 42, failedChecks: () => [], denied });
    await health.sample();
    expect(await health.observe(42)()).toBe('its counters cannot be read');
  });

  test('the health report of a node names the readiness checks that fail', async () => {
    expect(await faults(0, [0], { failedChecks: ['policy_ready'] })).toEqual([FAULT]);
  });

  test('the health report of a node names the policy generation in force if the node does not enforce the policy of the roll-out', async () => {
    expect(await faults(0, [0], { generation: 41 })).toEqual(['it enforces generation 41']);
  });
});

import { firstValueFrom } from 'rxjs';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChangeEnd, PendingWrite } from '#contracts/policy/pending-change.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import type { KvStore, PolicyStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy, storedPolicy } from './stored-policy.js';

const WITHIN_MS = 60_000;
const open = (kv: KvStore) => loadPolicyStore(kv, noCopy, () => {});
const policyOf = (revision: number) => storedPolicy({ id: 'a', name: 'a', revision }, `{"n":${revision}}`);
const unconfirmed = (): PendingWrite => ({
  terms: { kind: 'confirm', within_ms: WITHIN_MS },
  by: 'admin',
  at: new Date().toISOString(),
});
/** The time in ms until the deadline of the pending change; null if none must be confirmed. */
const leftMs = async (policies: PolicyStore): Promise<number | null> => {
  const deadline = await firstValueFrom(policies.deadline);
  return deadline && Math.round(deadline.atMs - performance.now());
};

let kv: KvStore;
let policies: PolicyStore;
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['Date', 'performance', 'setTimeout'] });
  kv = createMemoryStore();
  policies = await open(kv);
  await policies.commit({ put: policyOf(1), generation: 1 });
  await policies.commit({ put: policyOf(2), pending: unconfirmed(), generation: 2 });
});
afterEach(() => {
  vi.useRealTimers();
});

const end = async (outcome: ChangeEnd['outcome']) => {
  const change = (await firstValueFrom(policies.pending))?.id ?? '';
  const at = new Date().toISOString();
  return policies.settle({ change, outcome, reason: '', at, by: 'ops', because: 'asked' });
};
const REFUSED = { code: 'revision_conflict', message: expect.stringContaining('has passed') as string };

describe('the deadline of an unconfirmed change on a single node', () => {
  test('is measured from the commit, and ends with the change', async () => {
    expect(await leftMs(policies)).toBe(WITHIN_MS);
    vi.advanceTimersByTime(20_000);
    expect(await leftMs(policies)).toBe(40_000);
    await end('complete');
    expect(await leftMs(policies)).toBeNull();
  });

  test('after a restart is measured by the clock of the machine, and is at least now and at most the full time from now', async () => {
    for (const [elapsedMs, left] of [
      [20_000, 40_000],
      [90_000, 0],
      [-90_000, WITHIN_MS],
    ] as const) {
      vi.setSystemTime(Date.now() + elapsedMs);
      expect(await leftMs(await open(kv))).toBe(left);
      vi.setSystemTime(Date.now() - elapsedMs);
    }
  });

  test('is corrected by the deadline of the kernel', async () => {
    const change = (await firstValueFrom(policies.pending))?.id ?? '';
    policies.correctDeadline('another change', performance.now());
    expect(await leftMs(policies)).toBe(WITHIN_MS);
    policies.correctDeadline(change, performance.now() + 5_000);
    expect(await leftMs(policies)).toBe(5_000);
  });

  test('begins again with a later unconfirmed write, whose revert restores the last confirmed policy', async () => {
    vi.advanceTimersByTime(20_000);
    await policies.commit({ put: policyOf(3), pending: unconfirmed(), generation: 5 });
    expect(await leftMs(policies)).toBe(WITHIN_MS);
    await end('revert');
    expect(Buffer.from((await policies.active())?.body ?? []).toString()).toBe('{"n":1}');
  });
});

describe('after the deadline', () => {
  beforeEach(() => {
    vi.advanceTimersByTime(WITHIN_MS);
  });

  test('the store refuses a confirmation and a write that would complete the change, and accepts the revert', async () => {
    await expect(end('complete')).rejects.toMatchObject(REFUSED);
    await expect(policies.commit({ put: policyOf(3), generation: 5 })).rejects.toMatchObject(REFUSED);
    await end('revert');
    expect(await policies.generation()).toBe(3);
    await policies.commit({ put: policyOf(4), generation: 4 });
    expect(await policies.generation()).toBe(4);
  });

  test('the store accepts a write that changes nothing in force', async () => {
    await policies.commit({ put: storedPolicy({ id: 'b', active: false }, '{}'), generation: 2 });
    expect((await policies.list()).map(({ id }) => id)).toContain('b');
    expect(await firstValueFrom(policies.pending)).not.toBeNull();
  });
});

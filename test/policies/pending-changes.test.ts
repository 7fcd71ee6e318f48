import { firstValueFrom } from 'rxjs';
import { beforeEach, describe, expect, test } from 'vitest';
import type { KeptBase } from '#contracts/datapath/unconfirmed.js';
import { type PendingChanges, pendingChangesOver } from '#policies/pending-changes.js';
import { KERNEL_MARGIN_MS, standingOf } from '#policies/standing.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import type { PolicyStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy, storedPolicy } from '#test/store/stored-policy.js';

const WITHIN_MS = 60_000;
let policies: PolicyStore;
let changes: PendingChanges;
let reverted: string[];
let confirmed: number[];
beforeEach(async () => {
  policies = await loadPolicyStore(createMemoryStore(), noCopy, () => {});
  const put = (revision: number) => storedPolicy({ id: 'a', name: 'a', revision }, `{"n":${revision}}`);
  await policies.commit({ put: put(1), generation: 1 });
  const at = new Date().toISOString();
  const terms = { kind: 'confirm', within_ms: WITHIN_MS } as const;
  await policies.commit({ put: put(2), pending: { terms, by: 'admin', at }, generation: 2 });
  reverted = [];
  confirmed = [];
  changes = pendingChangesOver({
    policies,
    rollouts: null,
    reaches: async () => true,
    confirmed: async (reverts) => void confirmed.push(reverts),
    reverted: ({ generation }, reason) => reverted.push(`${generation}: ${reason}`),
    now: () => new Date(),
  });
});

/** A base of generation 3 whose deadline in the kernel is after `leftMs`. */
const base = (leftMs: number): KeptBase => ({
  generation: 3,
  atNs: process.hrtime.bigint() + BigInt(leftMs + KERNEL_MARGIN_MS) * 1_000_000n,
  hasReverted: false,
});
const inForce = (generation: number) => ({ generation, sinceMs: null, imageSha256: '' });
const leftMs = async (): Promise<number | null> => {
  const deadline = await firstValueFrom(policies.deadline);
  return deadline && deadline.atMs - performance.now();
};

describe('a process that finds an unconfirmed change at its start', () => {
  test('reverts and reports it if the kernel has reverted it', async () => {
    await changes.adopted({ inForce: inForce(3), base: { ...base(-1_000), hasReverted: true } });
    expect(await policies.toEnforce()).toMatchObject({ generation: 3, stored: { record: { revision: 3 } } });
    const why = 'it was not confirmed within 60 s; the kernel reverted it, because no process did so in time';
    expect([reverted, policies.reverted]).toMatchObject([[`2: ${why}`], { generation: 2, reason: why }]);
    await changes.adopted({ inForce: inForce(3), base: null });
    expect(reverted).toHaveLength(1);
  });

  test('takes the deadline from the kernel if the kernel still has the last confirmed policy', async () => {
    await changes.adopted({ inForce: inForce(2), base: base(7_000) });
    expect(reverted).toEqual([]);
    expect(Math.abs(((await leftMs()) ?? 0) - 7_000)).toBeLessThan(500);
  });

  test('keeps the change pending if the kernel still enforces the earlier policy', async () => {
    await changes.adopted({ inForce: inForce(1), base: null });
    expect([reverted, (await policies.enforced()).generation]).toEqual([[], 2]);
  });

  test.each([
    ['nothing, as after a restart of the machine', null, null],
    ['the change without a base, as after a build that kept none', inForce(2), null],
    ['another policy', inForce(7), { ...base(1_000), generation: 8 }],
  ])('reverts and reports it if the kernel has %s', async (_, found, kept) => {
    await changes.adopted({ inForce: found, base: kept });
    expect(reverted).toEqual([
      '2: it was not confirmed within 60 s; the kernel did not have the policy before it, for example after a restart of the machine',
    ]);
    expect((await policies.enforced()).generation).toBe(3);
  });
});

test('a confirmation removes the last confirmed policy before it from the kernel at once', async () => {
  await changes.end({ outcome: 'complete', generation: undefined, comment: undefined, author: 'ops', dryRun: true });
  expect(confirmed).toEqual([]);
  await changes.end({ outcome: 'complete', generation: undefined, comment: undefined, author: 'ops', dryRun: false });
  expect(confirmed).toEqual([3]);
});

describe('the state (stored, unconfirmed) of a policy that the datapath gets', () => {
  test('is unconfirmed with the deadline of the kernel while the policy is the pending change, and only then', async () => {
    const { isStored, unconfirmed } = await standingOf(policies, 2);
    expect([isStored, unconfirmed]).toMatchObject([true, { before: 1, reverts: 3 }]);
    const left = Number((unconfirmed?.atNs ?? 0n) - process.hrtime.bigint()) / 1e6;
    expect(Math.abs(left - WITHIN_MS - KERNEL_MARGIN_MS)).toBeLessThan(1_000);
    expect(await standingOf(policies, 5)).toEqual({ isStored: false, unconfirmed: null });
  });

  test('is stored and confirmed after the end of the change; the earlier generation is refused', async () => {
    await changes.end({ outcome: 'revert', generation: undefined, comment: undefined, author: 'ops', dryRun: false });
    expect(await standingOf(policies, 3)).toEqual({ isStored: true, unconfirmed: null });
    await expect(standingOf(policies, 2)).rejects.toMatchObject({ code: 'outdated' });
  });
});

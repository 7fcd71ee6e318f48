import { afterEach, expect, test, vi } from 'vitest';
import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import { type AnalysisPorts, analysePolicies, type PolicyReference } from '#policies/analysis.js';
import { explainLane } from '#policies/explain.js';
import { endingWhenIdle } from '#policies/thread/idle-thread.js';
import { createPolicyThread, type PolicyThread } from '#policies/thread/policy-thread.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { DUAL_OFFICE, OFFICE, officeAfter } from '../analysis/office.js';

const threads: PolicyThread[] = [];
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(threads.splice(0).map((thread) => thread.close()));
});

async function ports(budgetMs: number, ipv6 = false): Promise<AnalysisPorts> {
  const thread = createPolicyThread();
  threads.push(thread);
  return {
    policies: (await openMemoryStore()).policies,
    lane: explainLane(thread, budgetMs),
    surroundings: { fallback: 'deny', dns: true, servicePlane: true, policesNode: false, ipv6 },
    seen: null,
  };
}

/**
 * Two drafts whose comparison takes some seconds: each population has many rules, and the default changes.
 */
function costly(defaultPolicy: 'allow' | 'deny'): PolicyReference {
  const rules = Array.from({ length: 3_000 }, (_, at) => ({
    id: `r${at}`,
    action: 'allow',
    match: { dst_cidrs: [`10.${at % 250}.${Math.floor(at / 250)}.0/24`], proto: 'tcp', dst_ports: [at + 1] },
  }));
  const teams = Array.from({ length: 2_000 }, (_, at) => ({
    id: `t${at}`,
    mode: 'enforce' as const,
    sources: { cidrs: [`172.16.${Math.floor(at / 250)}.${at % 250}/32`] },
    rules: [{ id: 'own', action: 'allow', match: { dst_cidrs: [`192.168.${at % 250}.0/24`] } }],
  }));
  const shared = { id: 'shared', mode: 'enforce' as const, sources: { cidrs: ['0.0.0.0/0'] }, rules };
  const policy: PolicyConfig = { default_policy: defaultPolicy, source_groups: [shared, ...teams] };
  return { kind: 'draft', policy };
}

const diff = { kind: 'diff', limit: 10 } as const;
const drafts = (...policies: readonly PolicyConfig[]): PolicyReference[] =>
  policies.map((policy) => ({ kind: 'draft', policy }));

test('`analysePolicies` ends an analysis when its client disconnects, and answers the next one', async () => {
  const given = await ports(30_000);
  const gone = new AbortController();
  const began = performance.now();
  const running = analysePolicies(given, [costly('deny'), costly('allow')], diff, {
    subject: 'ann',
    signal: gone.signal,
  });
  const next = analysePolicies(
    given,
    drafts(
      OFFICE,
      officeAfter((draft) => draft.source_groups.splice(0, 1)),
    ),
    diff,
    {
      subject: 'bob',
      signal: new AbortController().signal,
    },
  );
  setTimeout(() => gone.abort(), 100);
  expect(await running).toMatchObject({ kind: 'refused', code: 'feature_unavailable' });
  expect(performance.now() - began).toBeLessThan(2_000);
  expect(await next).toMatchObject({ kind: 'diff', diff: { verdict: 'closes' } });
});

test('`analysePolicies` refuses an analysis that exceeds its time limit as too costly', async () => {
  const given = await ports(150);
  const asked = { subject: 'ann', signal: new AbortController().signal };
  expect(await analysePolicies(given, [costly('deny'), costly('allow')], diff, asked)).toMatchObject({
    kind: 'refused',
    code: 'too_costly',
  });
});

test.each([
  ['none are recorded', async () => null, 'this node records no flows: flow_history.retention is 0s'],
  [
    'the observer does not run',
    async () => {
      throw new Error('the observer is not running');
    },
    'the recorded flows cannot be read: the observer is not running',
  ],
  [
    'the observer does not answer',
    () => new Promise<never>(() => {}),
    'the recorded flows cannot be read: no answer within 2000 ms',
  ],
])('a diff has no impact and says why if %s', async (_, flows, reason) => {
  const given = { ...(await ports(30_000)), seen: { node: 'node-a', flows } };
  const after = officeAfter((draft) => draft.source_groups.splice(0, 1));
  const asked = { subject: 'ann', signal: new AbortController().signal };
  expect(await analysePolicies(given, drafts(OFFICE, after), diff, asked)).toMatchObject({
    kind: 'diff',
    diff: { verdict: 'closes', impact: null, impact_unavailable: reason },
  });
});

test('`analysePolicies` refuses a stored policy or revision that does not exist', async () => {
  const given = await ports(30_000);
  const asked = { subject: 'ann', signal: new AbortController().signal };
  const references: PolicyReference[] = [{ kind: 'active' }, { kind: 'stored', id: 'p-1', revision: 3 }];
  expect(await analysePolicies(given, references, diff, asked)).toMatchObject({
    kind: 'refused',
    code: 'not_found',
    detail: '/to: there is no policy p-1 with the revision 3',
  });
});

test('a policy thread that ends when it is idle ends only after its last task', async () => {
  vi.useFakeTimers();
  let closed = 0;
  let finish = (): void => {};
  const task = (): Promise<never> =>
    new Promise((resolve) => {
      finish = resolve as () => void;
    });
  const thread = endingWhenIdle({ perform: task, close: async () => void closed++ } as unknown as PolicyThread, 1_000);
  const work = {} as Parameters<PolicyThread['perform']>[0];
  for (let round = 0; round < 2; round++) {
    const running = thread.perform(work);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(closed).toBe(round);
    finish();
    await running;
    await vi.advanceTimersByTimeAsync(999);
    expect(closed).toBe(round);
    await vi.advanceTimersByTimeAsync(1);
    expect(closed).toBe(round + 1);
  }
});

test('`analysePolicies` answers about IPv6 flows if the node enforces IPv6 policies, and refuses a question about them otherwise', async () => {
  const question = { kind: 'ask', asked: { to: ['2001:db8:3::7'], ports: [445] }, limit: 5 } as const;
  const context = { subject: 'ann', signal: new AbortController().signal };
  expect(await analysePolicies(await ports(30_000, true), drafts(DUAL_OFFICE), question, context)).toMatchObject({
    kind: 'ask',
    answer: { answer: 'sometimes', passing_sources: { networks: ['2001:db8:1::/64'] } },
  });
  const without = await ports(30_000);
  expect(await analysePolicies(without, drafts(OFFICE), question, context)).toMatchObject({
    kind: 'invalid_question',
    problems: [{ pointer: '/to/0', message: expect.stringContaining('dataplane.ipv6: enforce') as string }],
  });
  expect(await analysePolicies(without, drafts(DUAL_OFFICE), question, context)).toMatchObject({
    kind: 'refused',
    code: 'invalid_policy',
  });
});

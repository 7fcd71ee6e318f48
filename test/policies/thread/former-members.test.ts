import { afterEach, expect, test, vi } from 'vitest';
import { type ListedMembership, NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import { createPolicyTaskRunner } from '#policies/thread/policy-task-runner.js';
import { Budget, CompileTooLarge } from '#policy/model/budget.js';

const SOURCE = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
const KEY = JSON.stringify(SOURCE);
const body = new TextEncoder().encode(
  JSON.stringify({
    source_groups: [
      {
        id: 'web',
        mode: 'enforce',
        sources: { kubernetes: [SOURCE] },
        rules: [{ id: 'out', action: 'allow', match: {} }],
      },
    ],
  }),
);
const surroundings = { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false } as const;
const present: ListedMembership = {
  scope: { ...NO_SELECTORS, resolved: new Set([KEY]) },
  list: { added: [{ number: 1, keys: [KEY] }], addresses: [], sets: new Uint32Array(0), dropped: [] },
};
const withFormer = { ...present, former: { addresses: [0x0a010101], sets: Uint32Array.of(1) } };

function prepared(membership: ListedMembership) {
  const perform = createPolicyTaskRunner();
  const text = { body, form: 'singleton', recordMode: 'enforce' } as const;
  const asked = perform({ kind: 'prepare', text, surroundings, integrations: ['prod'], compile: true, key: 'p' });
  if (asked.kind !== 'needs_members') throw new Error(JSON.stringify(asked));
  return perform({ kind: 'prepare_with_members', id: asked.id, membership });
}

/** Makes the next compilation exceed its limit. */
function exceedOnce(): void {
  vi.spyOn(Budget.prototype, 'entries').mockImplementationOnce(() => {
    throw new CompileTooLarge('lists', 2, 1);
  });
}

afterEach(() => {
  vi.restoreAllMocks();
});

test('a policy that exceeds a limit only because of rules for former Kubernetes members (no longer selected) is compiled without these rules', async () => {
  const [without, full] = [prepared(present), prepared(withFormer)];
  exceedOnce();
  const found = prepared(withFormer);
  if (found.kind !== 'prepared' || without.kind !== 'prepared' || full.kind !== 'prepared') throw new Error(found.kind);
  expect(found.program).toEqual(without.program);
  expect(found.program).not.toEqual(full.program);
  expect(await found.samples).toEqual(await without.samples);
});

test('a policy that exceeds a limit even without rules for former Kubernetes members (no longer selected) is refused as too large', () => {
  exceedOnce();
  expect(prepared(present).kind).toBe('too_large');
});

import { expect, test } from 'vitest';
import { createPolicyTaskRunner } from '#policies/thread/policy-task-runner.js';
import type { PolicySurroundings } from '#policies/thread/policy-work.js';

const surroundings: PolicySurroundings = {
  fallback: 'deny',
  dns: false,
  servicePlane: false,
  policesNode: false,
  ipv6: false,
};
/** Returns a policy without rules whose text has at least `bytes` bytes. */
const policyText = (bytes: number): Uint8Array =>
  new TextEncoder().encode(`{"default_policy":"deny","source_groups":[]${' '.repeat(bytes)}}`);

/** Returns which of two policies the thread still has in its cache after it has read both. */
function known(bytes: number): readonly string[] {
  const perform = createPolicyTaskRunner();
  for (const key of ['first', 'second'])
    perform({
      kind: 'prepare',
      text: { body: policyText(bytes), form: 'singleton', recordMode: 'enforce' },
      surroundings,
      integrations: [],
      compile: false,
      key,
    });
  const base = (key: string) =>
    ({ kind: 'locate_group', base: { key, text: null }, group: 'g', surroundings }) as const;
  return ['first', 'second'].filter((key) => perform(base(key)).kind === 'located');
}

test('the policy thread keeps the last two policies that it read', () => {
  expect(known(0)).toEqual(['first', 'second']);
});

test('the policy thread keeps only the last policy if its text has more than 4 MiB', () => {
  expect(known(4 * 1024 * 1024)).toEqual(['second']);
});

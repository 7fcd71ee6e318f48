import { expect, test } from 'vitest';
import { enforcedBy } from '#cluster/writes/enforced-by.js';
import type { PolicyDeleted } from '#contracts/policy/policy-write.js';

const DELETED: PolicyDeleted = { kind: 'deleted', generation: 7, warnings: [] };
const at = (...generations: number[]) => generations.map((generation, index) => ({ id: `n${index + 1}`, generation }));

/** Returns a function that returns the next of `members` at each call, and repeats the last. */
function polls(...members: (ReturnType<typeof at> | null)[]) {
  let poll = 0;
  return async () => members[Math.min(poll++, members.length - 1)] ?? null;
}

test('a policy write waits until all members, or more than half of the members, enforce the written policy', async () => {
  expect(await enforcedBy(DELETED, 'all', polls(at(7, 6, 6), at(7, 7, 6), at(7, 8, 7)))).toBe(DELETED);
  expect(await enforcedBy(DELETED, 'quorum', polls(at(7, 6, 6), at(7, 7, 6)), 0)).not.toBe(DELETED);
  expect(await enforcedBy(DELETED, 'quorum', polls(at(7, 7, 6)), 0)).toBe(DELETED);
  expect(await enforcedBy(DELETED, 'quorum', polls(at(7, 6)), 0)).not.toBe(DELETED);
});

test('a policy write succeeds, and returns the names of the members that do not enforce it in time', async () => {
  const late = await enforcedBy(DELETED, 'all', polls(at(7, 6, 5)), 0);
  expect(late).toMatchObject({ kind: 'deleted', warnings: [{ code: 'nodes_behind' }] });
  expect(JSON.stringify(late)).toContain('n2, n3');
  expect(JSON.stringify(await enforcedBy(DELETED, 'all', polls(null), 0))).toContain('cannot be read');
});

test('a policy write returns the names of the members that leave the cluster while the write waits for all members', async () => {
  const left = await enforcedBy(DELETED, 'all', polls(at(7, 6, 6), at(7, 7)));
  expect(JSON.stringify(left)).toContain('left the cluster before they enforced the policy: n3');
});

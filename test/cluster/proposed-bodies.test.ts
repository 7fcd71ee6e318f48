import { expect, test } from 'vitest';
import { collectProposed, proposedBodies } from '#cluster/writes/proposed-bodies.js';
import { Bodies } from '#store/policies/bodies.js';
import { rowOf } from '#store/policies/policy-row.js';
import { putJson } from '#store/records/json-value.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { storedPolicy } from '#test/store/stored-policy.js';

const SYNC = { sync: true };

test('the local store deletes the proposed policy bodies of ended writes, except those that a revision needs', async () => {
  const kv = createMemoryStore();
  const bodies = new Bodies(kv);
  const [committed, refused, live] = await Promise.all(
    ['committed', 'refused', 'live'].map((text) => bodies.whole(Buffer.from(text.repeat(100)))),
  );
  if (committed === undefined || refused === undefined || live === undefined) throw new Error('a body is missing');
  await kv.batch(proposedBodies('t1', committed.operations), SYNC);
  await kv.batch(proposedBodies('t2', [...refused.operations, ...committed.operations]), SYNC);
  await kv.batch(proposedBodies('t3', live.operations), SYNC);
  const { record } = storedPolicy({ id: 'a' }, '');
  await kv.batch([putJson('history/a/000000000001', rowOf(record, committed.sha256))], SYNC);
  await collectProposed(kv, (lock) => lock === 't3');
  expect(Buffer.from(await bodies.read(committed.sha256)).toString()).toBe('committed'.repeat(100));
  expect(Buffer.from(await bodies.read(live.sha256)).toString()).toBe('live'.repeat(100));
  const keys: string[] = [];
  for await (const [key] of kv.iterate({ gte: '', lt: '~' })) keys.push(key);
  const kept = [...committed.operations, ...live.operations].map(({ key }) => key);
  expect(keys).toEqual([...kept, 'cluster/proposed/t3', 'history/a/000000000001'].sort());
});

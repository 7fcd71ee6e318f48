import { describe, expect, test } from 'vitest';
import type { Assertion } from '#contracts/analysis/assertion.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import { createAssertionStore } from '#store/settings/assertion-store.js';
import { FakeSharedStore } from './fake-shared-store.js';
import { createMemoryStore } from './memory-store.js';
import { noCopy, storedPolicy } from './stored-policy.js';

const now = () => new Date('2026-01-01T00:00:00.000Z');
const noSsh: Assertion = { id: 'no-ssh', never: { ports: [22] } };

describe('the stored list of assertions', () => {
  test('the stored list of assertions has the number, author and time of its writes', async () => {
    const store = createAssertionStore(createMemoryStore(), { now });
    expect(await store.read()).toEqual({ revision: 0, assertions: [], updated_at: null, updated_by: null });
    const written = await store.write('ann', 0, () => [noSsh]);
    expect(written).toEqual({
      revision: 1,
      assertions: [noSsh],
      updated_at: '2026-01-01T00:00:00.000Z',
      updated_by: 'ann',
    });
    const read = await store.read();
    expect(read).toEqual(written);
    expect(await store.read()).toBe(read);
    await store.write('bob', undefined, (stored) => [...(stored ?? []), { id: 'b', never: {} }]);
    expect((await store.read()).assertions.map(({ id }) => id)).toEqual(['no-ssh', 'b']);
  });

  test('the stored list of assertions is not written over another revision than the expected one', async () => {
    const store = createAssertionStore(createMemoryStore(), { now });
    await store.write('ann', 0, () => [noSsh]);
    await expect(store.write('bob', 0, () => [])).rejects.toMatchObject({ code: 'revision_conflict' });
    expect((await store.read()).revision).toBe(1);
  });

  test('a list of assertions that this build cannot read causes an error for readers, and is null for the write that replaces it', async () => {
    const kv = createMemoryStore();
    const store = createAssertionStore(kv, { now });
    await kv.put('setting/assertions', Buffer.from('{"of":"a newer build"}'), { sync: true });
    await expect(store.read()).rejects.toMatchObject({ code: 'store_damaged' });
    await store.write('ann', undefined, (stored) => {
      expect(stored).toBeNull();
      return [];
    });
    expect(await store.read()).toMatchObject({ assertions: [] });
  });

  test('a list of assertions that one node of a cluster writes is the list of each node', async () => {
    const shared = new FakeSharedStore();
    const [one, other] = [await shared.nodeOf(), await shared.nodeOf()];
    const stores = [one, other].map((node) => createAssertionStore(node, { shared: node, now }));
    let changes = 0;
    stores[1]?.changed.subscribe(() => {
      changes++;
    });
    await stores[0]?.write('ann', 0, () => [noSsh]);
    await other.settled();
    expect([await stores[1]?.read(), changes]).toMatchObject([{ revision: 1, assertions: [noSsh] }, 1]);
  });
});

test('a policy commit is refused if the list of assertions has changed since its check', async () => {
  const kv = createMemoryStore();
  const policies = await loadPolicyStore(kv, noCopy, () => {});
  const store = createAssertionStore(kv, { now });
  const change = (revision: number, assertions?: number) => ({
    put: storedPolicy({ id: 'a', revision }, '{}'),
    generation: revision,
    ...(assertions === undefined ? {} : { assertions }),
  });
  await policies.commit(change(1, 0));
  await store.write('ann', 0, () => [noSsh]);
  await expect(policies.commit(change(2, 0))).rejects.toMatchObject({ code: 'revision_conflict' });
  await policies.commit(change(2, 1));
  await policies.commit(change(3));
  expect((await policies.active())?.record.revision).toBe(3);
});

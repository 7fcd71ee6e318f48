import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy, storedPolicy } from './stored-policy.js';

const open = (kv: KvStore = createMemoryStore()) => loadPolicyStore(kv, noCopy, () => {});
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    (error: StoreError) => error.code,
  );

type Faults = { batch: 'applied' | 'lost' | null; get: boolean; sync: boolean };

/**
 * Returns a store, and the faults that a test sets. `batch`: the next batch with operations fails, after the
 * store has `applied` or `lost` it. `get`: reads of the head fail. `sync`: empty batches fail.
 */
function faulty(): { readonly kv: KvStore; readonly faults: Faults } {
  const kv = createMemoryStore();
  const faults: Faults = { batch: null, get: false, sync: false };
  const eio = () => new StoreError('store_unavailable', 'fdatasync: Input/output error');
  return {
    faults,
    kv: {
      ...kv,
      get: (key) => (faults.get && key === 'head' ? Promise.reject(eio()) : kv.get(key)),
      batch: async (operations, options) => {
        const { batch } = faults;
        if (operations.length === 0) {
          if (faults.sync) throw eio();
          return;
        }
        faults.batch = null;
        if (batch !== 'lost') await kv.batch(operations, options);
        if (batch !== null) throw eio();
      },
    },
  };
}

describe('the policy store', () => {
  it('the policy store returns no policy, no active policy and generation number 0 if the store is new', async () => {
    const policies = await open();
    expect({
      list: await policies.list(),
      active: await policies.active(),
      generation: await policies.generation(),
      everActivated: await policies.everActivated(),
      get: await policies.get('none'),
      byName: await policies.findByName('none'),
      history: await policies.history('none'),
      revision: await policies.revision('none', 1),
    }).toEqual({
      list: [],
      active: null,
      generation: 0,
      everActivated: false,
      get: null,
      byName: null,
      history: [],
      revision: null,
    });
  });

  it('the policy store returns record and body as written, also from a second store that is loaded from the same database', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    const put = storedPolicy({ id: 'a', name: 'Edge' }, '{"default_policy": "deny"}');
    await policies.commit({ put, generation: 1 });
    for (const store of [policies, await open(kv)]) {
      expect({
        list: await store.list(),
        active: await store.active(),
        generation: await store.generation(),
        everActivated: await store.everActivated(),
        get: await store.get('a'),
        byName: await store.findByName('  eDGE '),
        history: await store.history('a'),
        revision: await store.revision('a', 1),
      }).toEqual({
        list: [put.record],
        active: put,
        generation: 1,
        everActivated: true,
        get: put,
        byName: put.record,
        history: [{ ...put.record, facts: { bytes: expect.any(Number), generation: 1 } }],
        revision: { ...put, record: { ...put.record, facts: { bytes: expect.any(Number), generation: 1 } } },
      });
    }
  });

  it('the policy store activates a policy and deactivates the previous policy in one commit', async () => {
    const policies = await open();
    const a = storedPolicy({ id: 'a', name: 'a' }, '{}');
    const b = storedPolicy({ id: 'b', name: 'b' }, '{}');
    await policies.commit({ put: a, generation: 1 });
    await policies.commit({ put: b, deactivate: 'a', generation: 2 });
    expect(await policies.list()).toEqual([{ ...a.record, active: false }, b.record]);
    expect((await policies.active())?.record.id).toBe('b');
    const facts = { bytes: expect.any(Number), generation: 1 };
    expect(await policies.history('a')).toEqual([{ ...a.record, active: false, facts }]);
  });

  it('the policy store has no active policy after it is deactivated, disabled or removed, and still reports that a policy was active before', async () => {
    for (const change of [
      { deactivate: 'a' },
      { put: storedPolicy({ id: 'a', revision: 2, mode: 'disabled', active: false }, '{}') },
      { remove: 'a' },
    ]) {
      const policies = await open();
      await policies.commit({ put: storedPolicy({ id: 'a' }, '{}'), generation: 1 });
      await policies.commit({ ...change, generation: 2 });
      expect(await policies.active()).toBeNull();
      expect(await policies.everActivated()).toBe(true);
      expect(await policies.generation()).toBe(2);
    }
  });

  it('the policy store keeps the active policy if another policy is stored, deactivated or removed', async () => {
    const policies = await open();
    const a = storedPolicy({ id: 'a', name: 'a' }, '{"a":1}');
    const b = storedPolicy({ id: 'b', name: null, active: false }, '{}');
    await policies.commit({ put: a, generation: 1 });
    await policies.commit({ put: b, deactivate: 'b', generation: 1 });
    expect(await policies.list()).toEqual([a.record, b.record]);
    await policies.commit({ remove: 'b', generation: 1 });
    expect(await policies.list()).toEqual([a.record]);
    expect(await policies.active()).toEqual(a);
  });

  it('the policy store lists every revision of a policy, newest first, also after the policy is removed', async () => {
    const policies = await open();
    for (let revision = 1; revision <= 12; revision++) {
      const author = `author ${revision}`;
      const put = storedPolicy({ id: 'a', revision, updated_by: author }, `{"n":${revision}}`);
      await policies.commit({ put, generation: revision });
    }
    const seen = async () => (await policies.history('a')).map(({ revision, active }) => [revision, active]);
    const numbers = Array.from({ length: 12 }, (_, index) => 12 - index);
    expect(await seen()).toEqual(numbers.map((revision) => [revision, revision === 12]));
    const third = storedPolicy({ id: 'a', revision: 3, updated_by: 'author 3', active: false }, '{"n":3}');
    const facts = { bytes: expect.any(Number), generation: 3 };
    expect(await policies.revision('a', 3)).toEqual({ ...third, record: { ...third.record, facts } });
    await policies.commit({ remove: 'a', generation: 13 });
    expect(await seen()).toEqual(numbers.map((revision) => [revision, false]));
    expect((await policies.revision('a', 12))?.body.toString()).toBe('{"n":12}');
  });

  it('the policy store refuses a write with a generation number below the stored number, or with a revision that is not newer than the stored revision', async () => {
    const policies = await open();
    const put = storedPolicy({ id: 'a', revision: 2 }, '{}');
    await policies.commit({ put, generation: 5 });
    expect(await codeOf(policies.commit({ deactivate: 'a', generation: 4 }))).toBe('generation_regressed');
    expect(await codeOf(policies.commit({ put, generation: 6 }))).toBe('revision_conflict');
    expect(await policies.active()).toEqual(put);
    expect(await policies.generation()).toBe(5);
  });

  it('the policy store keeps policy and generation number if the database cannot write the batch of a commit', async () => {
    const kv = createMemoryStore();
    const broken: KvStore = { ...kv, batch: () => Promise.reject(new Error('disk')) };
    const before = await open(kv);
    const put = storedPolicy({ id: 'a' }, '{}');
    await before.commit({ put, generation: 1 });
    const policies = await open(broken);
    await expect(policies.commit({ put: storedPolicy({ id: 'a', revision: 2 }, '{}'), generation: 2 })).rejects.toThrow(
      'disk',
    );
    expect(await policies.active()).toEqual(put);
    expect(await policies.generation()).toBe(1);
  });

  it('the policy store has a commit that the database stored although the write reported a failure, now and after the next start', async () => {
    const { kv, faults } = faulty();
    const policies = await open(kv);
    await policies.commit({ put: storedPolicy({ id: 'a', name: 'edge' }, '{"n":1}'), generation: 1 });
    faults.batch = 'applied';
    const second = storedPolicy({ id: 'a', name: 'edge', revision: 2 }, '{"n":2}');
    await policies.commit({ put: second, generation: 2 });
    faults.batch = 'applied';
    const guest = storedPolicy({ id: 'b', name: 'guest', active: false }, '{}');
    await policies.commit({ put: guest, generation: 2 });
    for (const store of [policies, await open(kv)])
      expect([await store.list(), await store.active(), await store.generation()]).toEqual([
        [second.record, guest.record],
        second,
        2,
      ]);
  });

  it('the policy store refuses a commit with outcome_unknown if its batch and the next read fail, and resolves it before the next commit', async () => {
    for (const outcome of ['applied', 'lost'] as const) {
      const { kv, faults } = faulty();
      const policies = await open(kv);
      const first = storedPolicy({ id: 'a' }, '{"n":1}');
      await policies.commit({ put: first, generation: 1 });
      const base = await policies.headCommit();
      const followed: number[] = [];
      policies.followed.subscribe((generation) => followed.push(generation));
      faults.batch = outcome;
      faults.get = true;
      const second = storedPolicy({ id: 'a', revision: 2 }, '{"n":2}');
      expect(await codeOf(policies.commit({ put: second, generation: 2 }))).toBe('outcome_unknown');
      const third = storedPolicy({ id: 'a', revision: 2 }, '{"n":3}');
      expect(await codeOf(policies.commit({ put: third, base, generation: 2 }))).toBe('store_unavailable');
      expect(await policies.active()).toEqual(first);
      faults.get = false;
      const isStored = outcome === 'applied';
      const code = await codeOf(policies.commit({ put: third, base, generation: 2 }));
      expect([code, followed]).toEqual(isStored ? ['revision_conflict', [2]] : ['done', []]);
      for (const store of [policies, await open(kv)])
        expect([await store.active(), await store.generation()]).toEqual([isStored ? second : third, 2]);
    }
  });

  it('the policy store shows a commit with outcome_unknown as soon as the disk works again, without another write', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { kv, faults } = faulty();
    const policies = await open(kv);
    const followed: number[] = [];
    policies.followed.subscribe((generation) => followed.push(generation));
    faults.batch = 'applied';
    faults.get = true;
    const put = storedPolicy({ id: 'a' }, '{}');
    expect(await codeOf(policies.commit({ put, generation: 1 }))).toBe('outcome_unknown');
    await vi.advanceTimersByTimeAsync(20_000);
    expect([await policies.active(), followed]).toEqual([null, []]);
    faults.get = false;
    await vi.advanceTimersByTimeAsync(5_000);
    expect([await policies.active(), followed]).toEqual([put, [1]]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('the policy store refuses a commit with outcome_unknown while the disk may lose the log of the database', async () => {
    const { kv, faults } = faulty();
    const policies = await open(kv);
    faults.batch = 'applied';
    faults.sync = true;
    const put = storedPolicy({ id: 'a' }, '{}');
    expect(await codeOf(policies.commit({ put, generation: 1 }))).toBe('outcome_unknown');
    expect(await policies.generation()).toBe(0);
    faults.sync = false;
    expect(await codeOf(policies.commit({ put, base: '', generation: 1 }))).toBe('revision_conflict');
    expect(await policies.active()).toEqual(put);
  });

  it('the policy store commits in the order of the calls', async () => {
    const policies = await open();
    const revisions = Array.from({ length: 20 }, (_, index) => index + 1);
    await Promise.all(
      revisions.map((revision) =>
        policies.commit({
          put: storedPolicy({ id: 'a', revision }, 'x'.repeat(20_000 * (21 - revision))),
          generation: revision,
        }),
      ),
    );
    expect((await policies.active())?.record.revision).toBe(20);
    expect((await policies.history('a')).length).toBe(20);
  });

  it('the policy store returns a body of 64 MiB with the same bytes', async () => {
    const policies = await open();
    const body = Buffer.alloc(64 * 1024 * 1024, '{"source_groups": ["Zürich"]} ');
    await policies.commit({ put: { ...storedPolicy({ id: 'a' }, ''), body }, generation: 1 });
    const back = await policies.active();
    expect(back !== null && Buffer.compare(back.body, body)).toBe(0);
  });
});

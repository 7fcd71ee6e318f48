import { describe, expect, test } from 'vitest';
import type { PendingWrite } from '#contracts/policy/pending-change.js';
import type { PolicyPut, PolicyRecord } from '#contracts/policy/policy-record.js';
import type { RevisionOrigin } from '#contracts/policy/revision.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import { encodeJson } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, PolicyStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy, storedPolicy } from './stored-policy.js';

const AT = '2026-02-01T08:30:00.000Z';
const CONFIRM: PendingWrite = { terms: { kind: 'confirm', within_ms: 60_000 }, by: 'admin', at: AT };
const SIZE = {
  groups: { added: 2, changed: 1, removed: 0 },
  rules: { added: 5, changed: 0, removed: 3 },
  other: false,
};
const open = (kv = createMemoryStore()) => loadPolicyStore(kv, noCopy, () => {});

async function write(policies: PolicyStore, change: Partial<PolicyRecord>, body: string, origin?: RevisionOrigin) {
  const put = storedPolicy({ id: 'a', ...change }, body);
  const generation = (await policies.generation()) + (put.record.active ? 1 : 0);
  await policies.commit({ put, generation, ...(origin && { origin }) });
}

const factsOf = async (policies: PolicyStore) =>
  (await policies.history('a')).map(({ revision, facts: { bytes: _, ...facts } }) => [revision, facts]);

describe('the history of a policy', () => {
  test('the history of a policy has the origin of each revision, and the generation of each write that activated it, also after the store is opened again', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    await write(policies, {}, '{"n":1}', { via: 'write', comment: 'begin', size: SIZE });
    await write(policies, { revision: 2, active: false }, '{"n":2}', { via: 'group_write', source_group: 'g' });
    await write(policies, { revision: 3 }, '{"n":3}');
    for (const store of [policies, await open(kv)])
      expect(await factsOf(store)).toEqual([
        [3, { generation: 2 }],
        [2, { via: 'group_write', source_group: 'g' }],
        [1, { via: 'write', comment: 'begin', size: SIZE, generation: 1 }],
      ]);
  });

  test('a page of the history has the revisions below a revision, newest first, without those whose record is damaged', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    for (let revision = 1; revision <= 300; revision++) await write(policies, { revision }, '{}');
    await kv.put('history/a/000000000290', Buffer.from('{"id":"a"}'), { sync: true });
    const iterate = kv.iterate.bind(kv);
    kv.iterate = async function* damaged(range) {
      for await (const entry of iterate(range)) {
        if (entry[0] !== 'history/a/000000000288') yield entry;
        else throw new StoreError('store_damaged', 'read it: its checksum is wrong', { key: entry[0] });
      }
    };
    const page = async (of: Parameters<PolicyStore['history']>[1]) =>
      (await policies.history('a', of)).map(({ revision }) => revision);
    expect(await page({ limit: 3 })).toEqual([300, 299, 298]);
    expect(await page({ before: 292, limit: 4 })).toEqual([291, 289, 287, 286]);
    expect(await page({ before: 3 })).toEqual([2, 1]);
    expect((await page({})).length).toBe(298);
    expect(await policies.history('b')).toEqual([]);
  });

  test('an activation without a policy write is stored with the activated revision, and leaves its record, its ETag and its text unchanged', async () => {
    const policies = await open();
    await write(policies, {}, '{"n":1}', { via: 'write' });
    const before = await policies.get('a');
    await policies.commit({ put: storedPolicy({ id: 'b' }, '{}'), deactivate: 'a', generation: 2 });
    const event = { by: 'ann', at: AT, comment: 'back to the office' };
    await policies.commit({ activate: 'a', deactivate: 'b', event, generation: 3 });
    expect(await policies.get('a')).toEqual(before);
    expect(await factsOf(policies)).toEqual([
      [1, { via: 'write', generation: 1, activated: { ...event, generation: 3 } }],
    ]);
  });

  test('the removal of a policy is stored with its last revision, and has a generation only if the policy was active', async () => {
    const policies = await open();
    const event = { by: 'ann', at: AT };
    for (const active of [false, true]) {
      await write(policies, { revision: active ? 2 : 1, active }, '{}', { via: 'write' });
      await policies.commit({ remove: 'a', event, generation: (await policies.generation()) + (active ? 1 : 0) });
      expect(await policies.get('a')).toBeNull();
    }
    expect(await factsOf(policies)).toEqual([
      [2, { via: 'write', generation: 1, removed: { ...event, generation: 2 } }],
      [1, { via: 'write', removed: event }],
    ]);
  });

  test('the revert of a pending change is a revision with the former revision, the comment, and the inverse size of the change', async () => {
    const policies = await open();
    await write(policies, {}, '{"n":1}', { via: 'write' });
    const put = storedPolicy({ id: 'a', revision: 2 }, '{"n":2}');
    await policies.commit({ put, origin: { via: 'write', size: SIZE }, pending: CONFIRM, generation: 2 });
    const change = await policies.headCommit();
    const end = { change, outcome: 'revert', reason: '', at: AT, by: 'ann', because: 'asked' } as const;
    await policies.settle({ ...end, comment: 'DNS was gone' });
    const size = {
      groups: { added: 0, changed: 1, removed: 2 },
      rules: { added: 3, changed: 0, removed: 5 },
      other: false,
    };
    const reverted = { via: 'revert', of_revision: 1, generation: 3, comment: 'DNS was gone', size };
    expect((await factsOf(policies))[0]).toEqual([3, reverted]);
  });

  test('the revert of a pending change of the active policy is an activation of the former policy', async () => {
    const policies = await open();
    await write(policies, {}, '{"n":1}', { via: 'write' });
    const put = storedPolicy({ id: 'b' }, '{}');
    await policies.commit({ put, deactivate: 'a', pending: CONFIRM, generation: 2 });
    const change = await policies.headCommit();
    await policies.settle({ change, outcome: 'revert', reason: '', at: AT, by: 'weir', because: 'elapsed' });
    const activated = { by: 'weir', at: AT, generation: 3 };
    expect(await factsOf(policies)).toEqual([[1, { via: 'write', generation: 1, activated }]]);
  });

  test('a rollback stores the text of the earlier revision as a new revision, and adds nothing to the texts in the store', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    const bodies = ['a', 'b'].map((letter) => `{"${letter}":"${'x'.repeat(400_000)}"}`);
    for (const [index, body] of bodies.entries()) await write(policies, { revision: index + 1 }, body);
    const texts = async () => {
      const found: string[] = [];
      for await (const [key] of kv.iterate({ gte: 'part', lt: 'part~' })) found.push(key);
      return found;
    };
    const before = await texts();
    const { record } = storedPolicy({ id: 'a', revision: 3 }, '');
    const put: PolicyPut = { record, ofRevision: 1 };
    await policies.commit({ put, origin: { via: 'rollback', of_revision: 1 }, generation: 3 });
    expect(Buffer.from((await policies.active())?.body ?? []).toString()).toBe(bodies[0]);
    expect(await texts()).toEqual(before);
    expect((await policies.history('a', { limit: 1 }))[0]?.facts).toEqual({
      via: 'rollback',
      of_revision: 1,
      generation: 3,
      bytes: 0,
    });
    const absent = { put: { record: { ...record, revision: 4 }, ofRevision: 9 }, generation: 4 };
    await expect(policies.commit(absent)).rejects.toMatchObject({ code: 'revision_conflict' });
  });

  test('the bytes of a revision are what its write has added to the store: all parts at first, then only changed ones', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    const body = Array.from({ length: 40_000 }, (_, at) => `${at}:${(at * 7919) % 104_729},`).join('');
    await write(policies, {}, body);
    await write(policies, { revision: 2 }, body);
    await write(policies, { revision: 3 }, `${body.slice(0, -1)};`);
    const [last, same, first] = (await policies.history('a')).map(({ facts }) => facts.bytes ?? -1);
    let stored = 0;
    for await (const [, value] of kv.iterate({ gte: 'part', lt: 'part~' })) stored += value.length;
    expect(same).toBe(0);
    expect((first ?? 0) + (last ?? 0)).toBe(stored);
    expect(last).toBeLessThan((first ?? 0) / 2);
  });

  test.each([
    ['without facts, as an older build wrote it', undefined],
    ['with facts that are no object', 'x'],
    ['with facts that a newer build wrote in another form', { revision: 1, via: 'write', size: 3 }],
    ['with the facts of another revision, as an older build copied them', { revision: 7, via: 'write' }],
  ])(
    'a policy record %s is readable, and its entry in the history contains no facts about the write',
    async (_, facts) => {
      const kv = createMemoryStore();
      await write(await open(kv), {}, '{"n":1}');
      const stored = (await kv.get('policy/a')) ?? new Uint8Array();
      const { facts: __, ...row } = RECORDS.policy.read('policy/a', stored);
      const value = encodeJson({ ...row, ...(facts === undefined ? {} : { facts }) });
      const puts = ['policy/a', 'history/a/000000000001'].map((key): KvOperation => ({ type: 'put', key, value }));
      await kv.batch(puts, { sync: true });
      const policies = await open(kv);
      expect(Buffer.from((await policies.active())?.body ?? []).toString()).toBe('{"n":1}');
      expect((await policies.history('a')).map(({ facts: found }) => found)).toEqual([{}]);
      await policies.commit({ activate: 'a', event: { by: 'ann', at: AT }, generation: 2 });
      expect(await factsOf(policies)).toEqual([[1, { activated: { by: 'ann', at: AT, generation: 2 } }]]);
    },
  );
});

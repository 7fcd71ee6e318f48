import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { PolicyPut } from '#contracts/policy/policy-record.js';
import { ALWAYS_KEPT, beyondBounds, keysOfFormer, type ListedRevision } from '#store/policies/history-bounds.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import { createAssertionStore } from '#store/settings/assertion-store.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';
import { expectEqual } from '#test/expect-equal.js';
import { Random, seedOf } from '#test/seed.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy, storedPolicy } from './stored-policy.js';

const listed = (
  policy: string,
  revision: number,
  bytes = 1,
  at: string | null = `2026-01-01T00:00:${revision + 10}Z`,
) =>
  ({
    key: `history/${policy}/${revision}`,
    policy,
    revision,
    at,
    name: policy.toUpperCase(),
    bytes,
  }) satisfies ListedRevision;
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);
const keysOf = (policy: string, from: number, to: number) => range(from, to).map((n) => `history/${policy}/${n}`);
const NONE: ReadonlySet<string> = new Set();

describe('the revisions beyond the bounds of the history', () => {
  test('the revisions beyond the bounds of the history are the oldest ones of each policy', () => {
    const all = [...range(1, 30).map((n) => listed('a', n)), ...range(1, 12).map((n) => listed('b', n))];
    const beyond = beyondBounds(all, NONE, { revisions: 25, bytes: 1_000 });
    expect([...beyond]).toEqual(keysOf('a', 1, 5));
  });

  test('the revisions beyond the bounds of the history never include the newest ten, and those that are needed', () => {
    const all = range(1, 30).map((n) => listed('a', n));
    const needed = new Set(['history/a/3', 'history/a/7']);
    const bounds = { revisions: 1, bytes: 0 };
    expect([...beyondBounds(all, needed, bounds)]).toEqual(
      keysOf('a', 1, 30 - ALWAYS_KEPT).filter((key) => !needed.has(key)),
    );
  });

  test('the revisions beyond the bounds of the history are the oldest ones of all policies while their total size exceeds the limit', () => {
    const at = (second: number) => `2026-01-01T00:00:${second}Z`;
    const all = [
      ...range(1, 20).map((n) => listed('a', n, 10, at(10 + n))),
      ...range(1, 20).map((n) => listed('b', n, 10, at(13 + n))),
    ];
    // 40 revisions have 400 bytes: five must go, the oldest first.
    const beyond = beyondBounds(all, NONE, { revisions: 100, bytes: 350 });
    expect([...beyond].sort()).toEqual([...keysOf('a', 1, 4), ...keysOf('b', 1, 1)].sort());
  });

  test('the revisions beyond the bounds of the history are the first revisions of each policy, although a clock was set back', () => {
    const all = range(1, 20).map((n) => listed('a', n, 10, `2026-01-01T00:00:${n === 3 ? 10 : 40 - n}Z`));
    const beyond = beyondBounds(all, NONE, { revisions: 100, bytes: 150 });
    expect([...beyond]).toEqual(keysOf('a', 1, 5));
  });

  test('the revisions beyond the bounds of the history include revisions that cannot be read, which count for the number limit but not for the size limit', () => {
    const all = range(1, 20).map((n) => listed('a', n, n < 6 ? 0 : 10, n < 6 ? null : undefined));
    expect([...beyondBounds(all, NONE, { revisions: 100, bytes: 110 })]).toEqual(keysOf('a', 6, 9));
    expect([...beyondBounds(all, NONE, { revisions: 18, bytes: 1_000 })]).toEqual(keysOf('a', 1, 2));
  });

  test.each([
    ['its id', { revision: 3, policy: 'a' }, ['history/a/3']],
    ['its name at that revision', { revision: 3, policy: ' A ' }, ['history/a/3']],
    ['its present name', { revision: 3, policy: 'new' }, ['history/b/3']],
    ['no policy', { revision: 3 }, ['history/a/3', 'history/b/3']],
    ['a revision that does not exist', { revision: 40, policy: 'a' }, []],
  ])(
    'a revision that an assertion compares with is kept if the assertion gives its policy by %s',
    (_, former, keys) => {
      const all = [...range(1, 30).map((n) => listed('a', n)), ...range(1, 30).map((n) => listed('b', n))];
      expect(keysOfFormer(all, [former], (policy) => (policy === 'b' ? 'New' : null))).toEqual(keys);
    },
  );

  test('the revisions that the history keeps are within both bounds, or are the minimum that is always kept', () => {
    const revision = fc.record({ policy: fc.constantFrom('a', 'b'), bytes: fc.nat(100), second: fc.nat(49) });
    fc.assert(
      fc.property(fc.array(revision, { maxLength: 80 }), fc.nat(40), fc.nat(3_000), (made, revisions, bytes) => {
        const numbers = { a: 0, b: 0 };
        const all = made.map(({ policy, bytes: own, second }) => {
          const name = policy;
          return listed(name, ++numbers[name], own, `2026-01-01T00:00:${second + 10}Z`);
        });
        const beyond = beyondBounds(all, NONE, { revisions, bytes });
        const kept = all.filter(({ key }) => !beyond.has(key));
        for (const name of ['a', 'b'] as const) {
          const own = kept.filter(({ policy }) => policy === name).map((one) => one.revision);
          expectEqual(own, range(numbers[name] - own.length + 1, numbers[name]));
          expect(own.length).toBeLessThanOrEqual(Math.max(revisions, ALWAYS_KEPT));
          expect(own.length).toBeGreaterThanOrEqual(Math.min(numbers[name], ALWAYS_KEPT));
        }
        const isLeast = (['a', 'b'] as const).every(
          (name) => kept.filter(({ policy }) => policy === name).length <= ALWAYS_KEPT,
        );
        const sum = kept.reduce((total, { bytes: own }) => total + own, 0);
        expectEqual(isLeast || sum <= bytes, true);
      }),
      { numRuns: 2_000 },
    );
  });
});

const letters = (random: Random, length: number) =>
  Array.from({ length }, () => String.fromCharCode(97 + random.below(26))).join('');
const seed = () => new Random(seedOf(Date.now() % 100_000));
const BOUNDS = { revisions: 12, bytes: 2 ** 40 };

async function open(kv: KvStore, bounds = BOUNDS) {
  return loadPolicyStore(kv, noCopy, () => {}, null, bounds);
}
type Policies = Awaited<ReturnType<typeof open>>;

async function keysIn(kv: KvStore, prefix: string): Promise<string[]> {
  const found: string[] = [];
  for await (const [key] of kv.iterate({ gte: prefix, lt: `${prefix}\uffff` })) found.push(key);
  return found;
}

/** Returns the text of each revision in the history; throws if a part is missing. */
async function textsOf(policies: Policies, id = 'a'): Promise<ReadonlyMap<number, string>> {
  const texts = new Map<number, string>();
  for (const { revision } of await policies.history(id)) {
    const stored = await policies.revision(id, revision);
    texts.set(revision, Buffer.from(stored?.body ?? []).toString());
  }
  return texts;
}

/** Keeps the expected texts of policy `a`, and writes random revisions of it. */
class Writer {
  readonly texts: string[] = [''];
  constructor(
    readonly policies: () => Policies,
    readonly random: Random,
  ) {}

  async write(): Promise<void> {
    const revision = this.texts.length;
    const before = this.texts.at(-1) ?? '';
    const { record } = storedPolicy({ id: 'a', revision }, '');
    const kind = this.random.below(3);
    let put: PolicyPut;
    let text: string;
    const known = await this.policies().history('a');
    if (before === '' || kind === 0) {
      // An earlier text again, or a new one: it can have the parts of a revision that a sweep removes.
      text = this.random.below(2) === 0 ? this.random.pick(this.texts) : '';
      if (text === '') text = letters(this.random, 300_000);
      put = { record, body: Buffer.from(text) };
    } else if (kind === 1) {
      const [from, fresh] = [this.random.below(before.length), letters(this.random, this.random.pick([1, 9_000]))];
      const to = Math.min(before.length, from + 9_000);
      text = before.slice(0, from) + fresh + before.slice(to);
      put = { record, edit: { revision: revision - 1, from, to, text: Buffer.from(fresh) } };
    } else {
      const { revision: ofRevision = 1 } = this.random.pick(known) ?? {};
      text = this.texts[ofRevision] ?? '';
      put = { record, ofRevision };
    }
    await this.policies().commit({ put, generation: revision });
    this.texts.push(text);
  }
}

describe('the sweep of the history', () => {
  test('the sweep of the history removes the oldest revisions, and exactly the parts of policy texts that no other revision contains', async () => {
    const random = seed();
    const kv = createMemoryStore();
    const policies = await open(kv);
    const writer = new Writer(() => policies, random);
    for (let n = 0; n < 40; n++) await writer.write();
    const { revisions } = await policies.sweep.sweep();
    expect(revisions).toBe(28);
    const kept = await textsOf(policies);
    expect([...kept.keys()]).toEqual(range(29, 40).reverse());
    for (const [revision, text] of kept) expect(text === writer.texts[revision], `seed ${random.seed}`).toBe(true);
    const lists = await keysIn(kv, 'parts/');
    const named = new Set<string>();
    for (const key of lists)
      for (const { sha256 } of JSON.parse(Buffer.from((await kv.get(key)) ?? []).toString()) as { sha256: string }[])
        named.add(`part/${sha256}`);
    expect(await keysIn(kv, 'part/')).toEqual([...named].sort());
    const used = new Set<string>();
    for (const key of await keysIn(kv, 'history/'))
      used.add(
        `parts/${(JSON.parse(Buffer.from((await kv.get(key)) ?? []).toString()) as { body_sha256: string }).body_sha256}`,
      );
    expect(lists).toEqual([...used].sort());
    expect(await keysIn(kv, 'history-sweep/')).toEqual([]);
    expect(await policies.sweep.sweep()).toEqual({ revisions: 0, bodies: 0 });
  });

  test('the sweep of the history keeps the active policy, and the former policy of a pending change, however old it is', async () => {
    const policies = await open(createMemoryStore());
    const terms = { kind: 'confirm', within_ms: 60_000 } as const;
    for (let revision = 1; revision <= 30; revision++) {
      const pending = { terms, by: 'ann', at: '2026-02-01T08:30:00.000Z' };
      const put = storedPolicy({ id: 'a', revision }, `{"n":${revision}}`);
      await policies.commit({ put, generation: revision, ...(revision > 2 ? { pending } : {}) });
    }
    await policies.commit({ put: storedPolicy({ id: 'b', active: false }, '{}'), generation: 30 });
    await policies.sweep.sweep();
    expect([...(await textsOf(policies)).keys()]).toEqual([...range(19, 30).reverse(), 2]);
    const change = await policies.headCommit();
    const { pending } = policies;
    const id = await new Promise<string>((resolve) => pending.subscribe((found) => resolve(found?.id ?? change)));
    const end = { change: id, outcome: 'revert', reason: '', at: '2026-02-01T08:30:00.000Z', by: 'weir' } as const;
    await policies.settle({ ...end, because: 'elapsed' });
    expect(Buffer.from((await policies.active())?.body ?? []).toString()).toBe('{"n":2}');
  });

  test('the sweep of the history keeps a revision that an assertion compares with, and removes nothing while the list cannot be read', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    const assertions = createAssertionStore(kv);
    await assertions.write('ann', 0, () => [{ id: 'ratchet', opens_nothing_since: { revision: 3, policy: 'a' } }]);
    for (let revision = 1; revision <= 30; revision++)
      await policies.commit({ put: storedPolicy({ id: 'a', revision }, `{"n":${revision}}`), generation: revision });
    const list = (await kv.get('setting/assertions')) ?? new Uint8Array();
    await kv.put('setting/assertions', Buffer.from('{"of":"a newer build"}'), { sync: true });
    await expect(policies.sweep.sweep()).rejects.toMatchObject({ code: 'store_damaged' });
    expect((await policies.history('a')).length).toBe(30);
    await kv.put('setting/assertions', list, { sync: true });
    await policies.sweep.sweep();
    expect([...(await textsOf(policies))].map(([revision]) => revision)).toEqual([...range(19, 30).reverse(), 3]);
  });

  test('the sweep of the history removes only parts that removed revisions contained, while a revision cannot be read', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    for (let revision = 1; revision <= 20; revision++)
      await policies.commit({ put: storedPolicy({ id: 'a', revision }, `{"n":${revision}}`), generation: revision });
    const parts = (await keysIn(kv, 'part')).length;
    const key = 'history/a/000000000015';
    const intact = (await kv.get(key)) ?? new Uint8Array();
    await kv.put(key, Buffer.from('{"of":"a newer build"}'), { sync: true });
    expect(await policies.sweep.sweep()).toEqual({ revisions: 8, bodies: 0 });
    expect((await keysIn(kv, 'part')).length).toBe(parts);
    await kv.put(key, intact, { sync: true });
    expect(await policies.sweep.sweep()).toEqual({ revisions: 0, bodies: 16 });
    expect([...(await textsOf(policies)).keys()]).toEqual(range(9, 20).reverse());
  });

  test('the sweep of the history loses no part that a concurrent commit refers to', async () => {
    const random = seed();
    const kv = createMemoryStore();
    const slow: KvStore = {
      ...kv,
      // Each operation of the store gives the other side a chance to run.
      getMany: async (keys) => {
        await new Promise(setImmediate);
        return kv.getMany(keys);
      },
    };
    const policies = await open(slow, { revisions: 10, bytes: 2 ** 40 });
    const writer = new Writer(() => policies, random);
    let isWriting = true;
    let removed = 0;
    const sweeping = (async () => {
      while (isWriting) {
        removed += (await policies.sweep.sweep()).bodies;
        await new Promise(setImmediate);
      }
    })();
    for (let n = 0; n < 150; n++) await writer.write();
    isWriting = false;
    await sweeping;
    expect(removed).toBeGreaterThan(100);
    for (const [revision, text] of await textsOf(policies))
      expect(text === writer.texts[revision], `seed ${random.seed}, revision ${revision}`).toBe(true);
  });

  test.each([
    ['as a whole text', { body: Buffer.from('{"n":1}') }],
    ['as the text of an earlier revision', { ofRevision: 1 }],
  ])(
    'the sweep of the history keeps the text parts of a removed revision if a commit writes them again at the same time, %s',
    async (_, text) => {
      const kv = createMemoryStore();
      const policies = await open(kv);
      for (let revision = 1; revision <= 20; revision++)
        await policies.commit({ put: storedPolicy({ id: 'a', revision }, `{"n":${revision}}`), generation: revision });
      const { record } = storedPolicy({ id: 'a', revision: 21 }, '');
      const change = { put: { record, ...text } as PolicyPut, generation: 21 };
      await policies.plan(change);
      const intact = { ...kv };
      let commits = 0;
      kv.getMany = async (keys) => {
        const values = await intact.getMany(keys);
        // The sweep reads the lists of parts that it removes, and then those that it keeps.
        if (keys[0]?.startsWith('parts/') === true && ++commits === 2) await policies.commit(change);
        return values;
      };
      expect(await policies.sweep.sweep()).toEqual({ revisions: 8, bodies: 14 });
      Object.assign(kv, intact);
      expect((await textsOf(policies)).get(21)).toBe('{"n":1}');
    },
  );

  test('the sweep of the history continues after a crash at any of its writes, and loses no part', async () => {
    const random = seed();
    for (let crashAt = 1; ; crashAt++) {
      const kv = createMemoryStore();
      let policies = await open(kv, { revisions: 1_000, bytes: 2 ** 40 });
      const writer = new Writer(() => policies, random);
      for (let n = 0; n < 25; n++) await writer.write();
      let batches = 0;
      const dying: KvStore = {
        ...kv,
        batch: async (operations, options) => {
          if (++batches >= crashAt) throw new StoreError('store_unavailable', 'the process died');
          await kv.batch(operations, options);
        },
      };
      const dead = await open(dying);
      const failed = await dead.sweep.sweep().then(
        () => false,
        () => true,
      );
      policies = await open(kv);
      await policies.sweep.sweep();
      const kept = await textsOf(policies);
      expect([...kept.keys()]).toEqual(range(14, 25).reverse());
      for (const [revision, text] of kept)
        expect(text === writer.texts[revision], `seed ${random.seed}, crash ${crashAt}`).toBe(true);
      expect(await keysIn(kv, 'history-sweep/')).toEqual([]);
      if (!failed) break;
    }
  });

  test('a revision that the sweep removes while it is read is reported as absent', async () => {
    const kv = createMemoryStore();
    const policies = await open(kv);
    for (let revision = 1; revision <= 20; revision++)
      await policies.commit({ put: storedPolicy({ id: 'a', revision }, `{"n":${revision}}`), generation: revision });
    const intact = { ...kv };
    let isSwept = false;
    kv.get = async (key) => {
      const value = await intact.get(key);
      if (key === 'history/a/000000000001' && !isSwept) {
        isSwept = true;
        await policies.sweep.sweep();
      }
      return value;
    };
    expect(await policies.revision('a', 1)).toBeNull();
    isSwept = false;
    expect(await policies.slice('a', 2, 0, 1)).toBeNull();
  });
});

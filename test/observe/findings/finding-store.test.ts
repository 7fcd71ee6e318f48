import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { FindingDelta } from '#observe/findings/finding.js';
import { EVERY_FINDING, type FindingFilter } from '#observe/findings/finding-filter.js';
import { readNetwork } from '#observe/findings/network-filter.js';
import {
  type FindingStore,
  type FindingStoreOptions,
  MergeError,
  openFindingStore,
} from '#observe/findings/store/finding-store.js';
import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { Model } from './finding-store-model.js';
import { seen } from './seen.js';

const prefix = (text: string) => readNetwork(text) ?? { address: 0, length: 0 };
const OPTIONS: FindingStoreOptions = { retentionMs: 1_000_000, maxEntries: 1_000, sinks: [], now: () => 500_000 };

const open = async (options: Partial<FindingStoreOptions> = {}, kv: KvStore = createMemoryStore()) => {
  const ledger = await openFindingStore(kv, { ...OPTIONS, ...options });
  onTestFinished(() => ledger.close());
  return ledger;
};
const ask = async (ledger: FindingStore, filter: Partial<FindingFilter> = {}) =>
  (await ledger.query({ filter: { ...EVERY_FINDING, ...filter }, limit: 1_000, cursor: null })).items;
/** Returns all pages of a query: follows the cursor of each page until the last page. */
async function walk(ledger: FindingStore, filter: FindingFilter, limit: number) {
  const pages = [];
  let cursor: string | null = null;
  do {
    const page = await ledger.query({ filter, limit, cursor });
    pages.push(page.items);
    cursor = page.next;
  } while (cursor !== null);
  return pages;
}

describe('`FindingStore`', () => {
  it('`FindingStore` adds the counts of equal findings, also across restarts, and keeps the latest policy generation', async () => {
    const folder = temporaryFolder();
    const first = await openFindingStore(await openRocksDbStore(folder, { plain: true }), OPTIONS);
    await first.merge([
      seen({ lastMs: 2_000, generation: 8 }),
      seen({ firstMs: 500, lastMs: 1_500, generation: 7, count: 4 }),
    ]);
    await first.merge([seen({ source: '10.0.0.8' })]);
    await first.close();
    const again = await open({}, await openRocksDbStore(folder, { plain: true }));
    await again.merge([seen({ firstMs: 3_000, lastMs: 3_000, generation: 9, count: 2 })]);
    const [newest, other, ...none] = await ask(again);
    const id = expect.stringMatching(/^[0-9a-f]{32}$/);
    expect([newest, other]).toEqual([
      { ...seen({ firstMs: 500, lastMs: 3_000, generation: 9, count: 7 }), id },
      { ...seen({ source: '10.0.0.8' }), id },
    ]);
    expect([none, again.count]).toEqual([[], 2]);
  });

  it('`FindingStore` stores findings separately if the findings differ in any field except policy generation, time and count', async () => {
    const ledger = await open();
    const differences: Partial<FindingDelta>[] = [
      {},
      { type: 'dns_deny' },
      { policyId: null },
      { sourceGroup: 'guests' },
      { rule: null },
      { decidedBy: 'group_default' },
      { source: null },
      { destination: '192.0.2.2' },
      { destinationPort: 80 },
      { protocol: 17 },
      { hostname: 'a.example' },
      { sni: 'a.example' },
      { http: { method: 'GET', host: 'a.example', path: '/' } },
      { http: { method: 'GET', host: 'a.example', path: '/b' } },
      { icmpType: 8 },
      { icmpCode: 0 },
      { dropReason: null },
      { effectiveAction: 'allow' },
      { actor: 'alice' },
      { operation: 'putPolicy' },
      { target: '/x' },
    ];
    await ledger.merge(differences.map(seen));
    await ledger.merge([seen({ generation: 8, firstMs: 2_000, lastMs: 2_000 })]);
    expect(ledger.count).toBe(differences.length);
  });

  it('`FindingStore` stores two equal findings of type config_change separately', async () => {
    const ledger = await open();
    const change = seen({ type: 'config_change', written: { status: 200, etag: '"a.1"' } });
    await ledger.merge([change, change]);
    await ledger.merge([change]);
    expect((await ask(ledger)).map(({ count, written }) => [count, written])).toEqual(
      Array.from({ length: 3 }, () => [1, { status: 200, etag: '"a.1"' }]),
    );
  });

  it('`FindingStore` returns for random queries the same findings as a linear scan of all findings', async () => {
    const few = <T>(...values: T[]) => fc.uniqueArray(fc.constantFrom(...values), { maxLength: 2 });
    const delta = fc
      .record({
        type: fc.constantFrom('l4_deny' as const, 'dns_deny' as const),
        policyId: fc.constantFrom(null, 'p', 'q'),
        sourceGroup: fc.constantFrom(null, 'lan', 'a/b\0', 'ü'),
        rule: fc.constantFrom(null, 'web', 'x'.repeat(100)),
        source: fc.constantFrom(null, '10.0.0.7', '10.0.1.8', '2001:db8::1', 'fe80::1'),
        destination: fc.constantFrom(null, '192.0.2.1', '198.51.100.1', 'ff02::1'),
        lastMs: fc.integer({ min: 1, max: 60 }),
        count: fc.integer({ min: 1, max: 9 }),
      })
      .map((fields) => seen({ ...fields, firstMs: fields.lastMs }));
    const filter = fc.record({
      ids: fc.constant<readonly string[]>([]),
      types: few('l4_deny' as const, 'dns_deny' as const),
      policyIds: few('p', 'q', 'none'),
      sourceGroups: few('lan', 'a/b\0', 'ü'),
      rules: few('web', 'x'.repeat(100)),
      sources: few(
        ...['10.0.0.7', '10.0.1.8', '10.0.0.0/16', '0.0.0.0/0'].map(prefix),
        ...['2001:DB8:0::1', '2001:db8::/32', 'fe80::/10', '8000::/1', '2001:db8::1/127'].map(prefix),
      ),
      destinations: few(prefix('192.0.2.1'), prefix('192.0.2.0/24'), prefix('ff02::1'), prefix('ff00::/8')),
      sinceMs: fc.option(fc.integer({ min: 0, max: 70 })),
      untilMs: fc.option(fc.integer({ min: 0, max: 70 })),
    });
    const step = fc.record({
      deltas: fc.array(delta, { maxLength: 12 }),
      passedMs: fc.integer({ min: 0, max: 10 }),
      filter,
      limit: fc.integer({ min: 1, max: 5 }),
    });
    const bounds = fc.record({ retentionMs: fc.constantFrom(20, 1_000), maxEntries: fc.constantFrom(5, 1_000) });
    const root = await openRocksDbStore(temporaryFolder(), { plain: true });
    onTestFinished(() => root.close());
    const emptied = async (): Promise<KvStore> => {
      for await (const [key] of root.iterate({ gte: '', lt: '~' })) await root.delete(key, { sync: false });
      return { ...bound(root), close: async () => {} };
    };

    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), bounds, fc.boolean(), async (steps, { ...limits }, disk) => {
        let nowMs = 60;
        const now = () => nowMs;
        const kv = disk ? await emptied() : createMemoryStore();
        const ledger = await openFindingStore(kv, { ...limits, sinks: [], now });
        const model = new Model(limits.retentionMs, limits.maxEntries, now);
        for (const { deltas, passedMs, filter: asked, limit } of steps) {
          nowMs += passedMs;
          await ledger.merge(deltas);
          model.merge(deltas);
          const pages = await walk(ledger, asked, limit);
          expect(pages.flat()).toEqual(model.query(asked));
          const some = model.query(asked).filter((_, at) => at % 2 === 0);
          const ofIds = { ...asked, ids: some.map(({ id }) => id) };
          if (some.length > 0) expect((await walk(ledger, ofIds, limit)).flat()).toEqual(some);
          expect(pages.every((page) => page.length <= limit)).toBe(true);
          expect(ledger.count).toBe(model.count);
        }
      }),
      { numRuns: 150 },
    );
  });

  it('`FindingStore` returns each unchanged finding exactly once while merges run between the pages of a query', async () => {
    const ledger = await open();
    const still = Array.from({ length: 50 }, (_, at) => seen({ source: `10.0.0.${at}`, lastMs: 1_000 + (at >> 2) }));
    const moving = Array.from({ length: 50 }, (_, at) => seen({ source: `10.0.1.${at}`, lastMs: 1_000 + (at >> 2) }));
    await ledger.merge([...still, ...moving]);
    const met: (string | null)[] = [];
    let cursor: string | null = null;
    let round = 0;
    do {
      const page = await ledger.query({ filter: EVERY_FINDING, limit: 7, cursor });
      met.push(...page.items.map(({ source }) => source));
      cursor = page.next;
      await ledger.merge(moving.slice(round * 5, round * 5 + 5).map((delta) => ({ ...delta, lastMs: 5_000 + round })));
      round += 1;
    } while (cursor !== null);
    expect(new Set(met).size).toBe(met.length);
    expect(met.filter((source) => source?.startsWith('10.0.0.')).sort()).toEqual(
      still.map(({ source }) => source).sort(),
    );
  });

  it('`FindingStore` omits findings older than the retention time from queries, even before a merge removes these findings', async () => {
    let nowMs = 1_000;
    const ledger = await open({ retentionMs: 100, now: () => nowMs });
    await ledger.merge([seen({ lastMs: 950 }), seen({ rule: 'dns', lastMs: 1_000 })]);
    nowMs = 1_060;
    expect((await ask(ledger)).map(({ rule }) => rule)).toEqual(['dns']);
    expect(ledger.count).toBe(2);
    await ledger.merge([]);
    expect(ledger.count).toBe(1);
  });

  it('`FindingStore` removes findings above the maximum in steps of at most 512 per merge, the least recently seen first', async () => {
    const kv = createMemoryStore();
    const many = Array.from({ length: 1_500 }, (_, at) =>
      seen({ source: `10.0.${at >> 8}.${at & 255}`, lastMs: 1_000 + at }),
    );
    const first = await openFindingStore({ ...bound(kv), close: async () => {} }, { ...OPTIONS, maxEntries: 10_000 });
    await first.merge(many);
    await first.close();
    const ledger = await open({ maxEntries: 10 }, kv);
    const counts = [];
    for (let merges = 0; merges < 4; merges++) {
      await ledger.merge([]);
      counts.push(ledger.count);
    }
    expect(counts).toEqual([988, 476, 10, 10]);
    expect((await ask(ledger)).map(({ lastMs }) => lastMs)).toEqual(Array.from({ length: 10 }, (_, at) => 2_499 - at));
    const left = [];
    for await (const [key] of kv.iterate({ gte: '', lt: '~' })) left.push(key);
    expect(left.length).toBe(10 * 8 + 1);
  });

  it('`FindingStore` examines a limited number of findings for each page with a network filter, so that a page may be empty before the last page', async () => {
    const ledger = await open({ maxEntries: 10_000 });
    const others = Array.from({ length: 2_500 }, (_, at) =>
      seen({ source: `10.1.${at >> 8}.${at & 255}`, lastMs: 2_000 + at }),
    );
    await ledger.merge([seen({ source: '10.0.0.7', lastMs: 1_000 }), ...others]);
    const pages = await walk(ledger, { ...EVERY_FINDING, sources: [prefix('10.0.0.0/24')] }, 10);
    expect(pages.map((page) => page.map(({ source }) => source))).toEqual([[], [], ['10.0.0.7']]);
  });

  it('`FindingStore` refuses an invalid cursor', async () => {
    const ledger = await open();
    const refusal = await ledger
      .query({ filter: EVERY_FINDING, limit: 1, cursor: 'AAAA' })
      .catch((error: Error) => error.message);
    expect(refusal).toBe('query findings: the cursor is not valid');
  });

  it('`FindingStore` throws a MergeError that contains exactly the changes of findings that the failed merge did not store', async () => {
    const kv = createMemoryStore();
    let writes = 0;
    const full: KvStore = {
      ...bound(kv),
      batch: async (operations, options) => {
        writes += 1;
        if (writes === 4) throw new StoreError('store_no_space', 'write: No space left on device');
        await kv.batch(operations, options);
      },
    };
    const ledger = await open({}, full);
    const deltas = Array.from({ length: 300 }, (_, at) => seen({ source: `10.0.${at >> 8}.${at & 255}` }));
    const error = await ledger.merge(deltas).catch((thrown: unknown) => thrown);
    if (!(error instanceof MergeError)) throw error;
    expect([error.code, error.message, ledger.count]).toEqual([
      'store_no_space',
      'merge findings: write: No space left on device',
      256,
    ]);
    expect(error.unmerged).toEqual(deltas.slice(256));
    await ledger.merge(error.unmerged);
    expect((await ask(ledger)).map(({ count }) => count)).toEqual(Array.from({ length: 300 }, () => 1));
  });

  it('`FindingStore` throws a MergeError without changes of findings if the merge stored all changes, and only the removal of old findings failed', async () => {
    const kv = createMemoryStore();
    let removing = false;
    const failing: KvStore = {
      ...bound(kv),
      batch: async (operations, options) => {
        if (removing && operations.every(({ type, key }) => type === 'delete' || key === 'state'))
          throw new StoreError('store_unavailable', 'write: IO error');
        await kv.batch(operations, options);
      },
    };
    const ledger = await open({ maxEntries: 1 }, failing);
    removing = true;
    const error = await ledger.merge([seen(), seen({ rule: 'dns' })]).catch((thrown: unknown) => thrown);
    if (!(error instanceof MergeError)) throw error;
    expect([error.code, error.unmerged, ledger.count]).toEqual(['store_unavailable', [], 2]);
  });

  it('`FindingStore` refuses to open a store whose format is newer than this build', async () => {
    const kv = createMemoryStore();
    await kv.put('state', Buffer.from('{"format":2,"count":0,"first":1,"next":1}'), { sync: false });
    const error = await openFindingStore(kv, OPTIONS).catch((thrown: StoreError) => `${thrown.code} ${thrown.message}`);
    expect(error).toBe('store_damaged open the findings: their format is 2, and this build knows format 1');
  });
});

function bound(kv: KvStore): KvStore {
  return {
    get: (key) => kv.get(key),
    getMany: (keys) => kv.getMany(keys),
    put: (key, value, options) => kv.put(key, value, options),
    delete: (key, options) => kv.delete(key, options),
    batch: (operations, options) => kv.batch(operations, options),
    iterate: (range) => kv.iterate(range),
    close: () => kv.close(),
  };
}

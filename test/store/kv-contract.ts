import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';

const sync = { sync: true };
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (value: Uint8Array): string => new TextDecoder().decode(value);

/** Defines the tests that every implementation of `KvStore` must pass. `make` returns an empty store. */
export function describeKvStore(name: string, make: () => Promise<KvStore>): void {
  describe(name, () => {
    let store: KvStore;
    beforeEach(async () => {
      store = await make();
    });
    afterEach(() => store.close());

    const walk = async (range: Parameters<KvStore['iterate']>[0]) => {
      const seen: [string, string][] = [];
      for await (const [key, value] of store.iterate(range)) seen.push([key, text(value)]);
      return seen;
    };

    it('the store returns stored values, and null for missing keys', async () => {
      await store.put('a', bytes('1'), sync);
      expect(await store.get('a').then((value) => value && text(value))).toBe('1');
      expect(await store.get('b')).toBeNull();
    });

    it('the store returns many values in the order of the requested keys', async () => {
      await store.put('a', bytes('1'), sync);
      await store.put('c', bytes('3'), sync);
      const values = await store.getMany(['c', 'b', 'a']);
      expect(values.map((value) => value && text(value))).toEqual(['3', null, '1']);
    });

    it('the store replaces and deletes values, and accepts the deletion of a missing key', async () => {
      await store.put('a', bytes('1'), sync);
      await store.put('a', bytes('2'), sync);
      expect(await walk({ gte: '', lt: '~' })).toEqual([['a', '2']]);
      await store.delete('a', sync);
      await store.delete('a', sync);
      expect(await walk({ gte: '', lt: '~' })).toEqual([]);
    });

    it('the store applies the operations of a batch in their order', async () => {
      await store.put('gone', bytes('x'), sync);
      await store.batch(
        [
          { type: 'put', key: 'a', value: bytes('1') },
          { type: 'put', key: 'a', value: bytes('2') },
          { type: 'delete', key: 'gone' },
          { type: 'put', key: 'b', value: bytes('3') },
          { type: 'delete', key: 'b' },
        ],
        sync,
      );
      expect(await walk({ gte: '', lt: '~' })).toEqual([['a', '2']]);
    });

    it('the store returns empty values, values of 3 MiB, and the written value if the caller changes the buffer after the write', async () => {
      const large = new Uint8Array(3 * 1024 * 1024).map((_, index) => index * 31);
      const small = bytes('1');
      await store.batch(
        [
          { type: 'put', key: 'empty', value: new Uint8Array(0) },
          { type: 'put', key: 'large', value: large },
          { type: 'put', key: 'small', value: small },
        ],
        sync,
      );
      small[0] = 0;
      const [empty, back, one] = await store.getMany(['empty', 'large', 'small']);
      expect(empty?.length).toBe(0);
      expect(Buffer.from(back ?? []).equals(large)).toBe(true);
      expect(one && text(one)).toBe('1');
    });

    it('the store iterates over a key range in the order of UTF-8 bytes, forwards or backwards, up to a limit', async () => {
      const keys = ['p/', 'p/a', 'p/a/b', 'p/é', 'p/\uffff', 'p/\u{1f600}', 'q'];
      for (const key of keys) await store.put(key, bytes(key), sync);
      const inRange = keys.slice(0, 6).map((key) => [key, key]);
      expect(await walk({ gte: 'p/', lt: 'p0' })).toEqual(inRange);
      expect(await walk({ gte: 'p/', lt: 'p0', reverse: true })).toEqual([...inRange].reverse());
      expect(await walk({ gte: 'p/', lt: 'p0', limit: 2 })).toEqual(inRange.slice(0, 2));
      expect(await walk({ gte: 'p/', lt: 'p0', reverse: true, limit: 2 })).toEqual([...inRange].reverse().slice(0, 2));
      expect(await walk({ gte: 'p/', lt: 'p0', limit: 0 })).toEqual([]);
    });

    it('the store iterates over 700 entries, more than the store reads in one page, forwards and backwards', async () => {
      const keys = Array.from({ length: 700 }, (_, index) => `k${String(index).padStart(4, '0')}`);
      await store.batch(
        keys.map((key) => ({ type: 'put', key, value: bytes(key) }) as const),
        sync,
      );
      expect((await walk({ gte: 'k', lt: 'l' })).map(([key]) => key)).toEqual(keys);
      expect((await walk({ gte: 'k', lt: 'l', reverse: true })).map(([key]) => key)).toEqual([...keys].reverse());
      expect((await walk({ gte: 'k', lt: 'l', limit: 600 })).length).toBe(600);
    });

    it('the store can be closed while an iterator is open or abandoned, and then refuses `get` and `iterate` with store_closed', async () => {
      await store.put('a', bytes('1'), sync);
      await store.put('b', bytes('2'), sync);
      for await (const [key] of store.iterate({ gte: '', lt: '~' })) {
        expect(key).toBe('a');
        break;
      }
      const half = store.iterate({ gte: '', lt: '~', limit: 2 })[Symbol.asyncIterator]();
      await half.next();
      await store.close();
      await store.close();
      const refused = await walk({ gte: '', lt: '~' }).catch((error: StoreError) => error.code);
      expect(refused).toBe('store_closed');
      expect(await store.get('a').catch((error: StoreError) => error.code)).toBe('store_closed');
    });

    it('the store has the content of a sorted map after random batches', async () => {
      const key = fc.constantFrom('a', 'a/', 'a/b', 'b', 'ab', 'é');
      const operation = fc.oneof(
        fc.record({ type: fc.constant('put' as const), key, value: fc.uint8Array({ maxLength: 8 }) }),
        fc.record({ type: fc.constant('delete' as const), key }),
      );
      await fc.assert(
        fc.asyncProperty(fc.array(fc.array(operation, { maxLength: 6 }), { maxLength: 6 }), async (batches) => {
          const model = new Map<string, string>();
          await store.batch(
            (await walk({ gte: '', lt: '\u{10ffff}' })).map(([stale]) => ({ type: 'delete', key: stale }) as const),
            { sync: false },
          );
          for (const batch of batches) {
            await store.batch(batch, { sync: false });
            for (const step of batch) {
              if (step.type === 'put') model.set(step.key, text(step.value));
              else model.delete(step.key);
            }
          }
          const sorted = [...model].sort(([a], [b]) => Buffer.from(a).compare(Buffer.from(b)));
          expect(await walk({ gte: '', lt: '\u{10ffff}' })).toEqual(sorted);
        }),
        { numRuns: 50 },
      );
    });
  });
}

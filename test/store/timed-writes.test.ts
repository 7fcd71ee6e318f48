import { expect, it } from 'vitest';
import { timedWrites } from '#store/store.js';
import { StoreError } from '#store/store-error.js';
import { createMemoryStore } from '#test/store/memory-store.js';

const value = Buffer.from('v');

it('`timedWrites` reports the outcome and duration of every write, and returns or throws like the wrapped store', async () => {
  const told: unknown[] = [];
  const kv = createMemoryStore();
  const full = { ...kv, batch: () => Promise.reject(new StoreError('store_no_space', 'write: the disk is full')) };
  const listener = (write: { readonly outcome: string; readonly seconds: number }) =>
    told.push([write.outcome, write.seconds >= 0]);
  const good = timedWrites(kv, listener);
  await good.put('k', value, { sync: true });
  expect(await good.get('k')).toEqual(new Uint8Array(value));
  await good.batch([{ type: 'put', key: 'l', value }], { sync: true });
  await good.delete('k', { sync: true });
  expect(await good.get('k')).toBeNull();
  await expect(timedWrites(full, listener).batch([], { sync: true })).rejects.toThrow('the disk is full');
  expect(told).toEqual([
    ['written', true],
    ['written', true],
    ['written', true],
    ['store_no_space', true],
  ]);
});

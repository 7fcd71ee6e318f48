import { expect, test } from 'vitest';
import { ReplicaStore } from '#cluster/replica/replica-store.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import { describeKvStore } from '#test/store/kv-contract.js';
import { createMemoryStore } from '#test/store/memory-store.js';

const put = (key: string, text: string): KvOperation => ({ type: 'put', key, value: Buffer.from(text) });

/** A store whose disk is full while `isFull` is true. */
function fillable() {
  const memory = createMemoryStore();
  const disk = { isFull: true };
  const batch: KvStore['batch'] = async (operations, options) => {
    if (disk.isFull) throw new StoreError('store_no_space', 'write: no space left on the device');
    await memory.batch(operations, options);
  };
  return { disk, memory, kv: new ReplicaStore({ ...memory, batch }) };
}

async function entriesOf(store: KvStore, range: Parameters<KvStore['iterate']>[0]) {
  const found: string[] = [];
  for await (const [key, value] of store.iterate(range)) found.push(`${key}=${Buffer.from(value).toString()}`);
  return found;
}

describeKvStore('replica store on a disk with space', async () => new ReplicaStore(createMemoryStore()));
describeKvStore('replica store whose changes are all in memory', async () => {
  const { kv } = fillable();
  const write: KvStore['batch'] = (operations) => kv.keep(operations);
  return Object.assign(kv, {
    batch: write,
    put: (key: string, value: Uint8Array) => write([{ type: 'put', key, value }], { sync: true }),
    delete: (key: string) => write([{ type: 'delete', key }], { sync: true }),
  });
});

test('a replica (local copy of the cluster keys) on a full disk returns changes from memory, and stores them when the disk has space', async () => {
  const { disk, memory, kv } = fillable();
  await memory.batch([put('a', '1'), put('b', '1'), put('d', '1')], { sync: true });
  const faults: (string | null)[] = [];
  kv.fault.subscribe((fault) => faults.push(fault));
  await kv.keep([put('b', '2'), put('c', '2'), { type: 'delete', key: 'd' }]);
  await kv.keep([put('e', '3')]);
  const all = { gte: 'a', lt: 'z' };
  expect(await entriesOf(kv, all)).toEqual(['a=1', 'b=2', 'c=2', 'e=3']);
  expect(await entriesOf(kv, { ...all, reverse: true, limit: 3 })).toEqual(['e=3', 'c=2', 'b=2']);
  expect((await kv.getMany(['a', 'd', 'c'])).map((value) => value && Buffer.from(value).toString())).toEqual([
    ...['1', null, '2'],
  ]);
  await expect(kv.batch([put('f', '4')], { sync: true })).rejects.toMatchObject({ code: 'store_no_space' });
  expect(await entriesOf(memory, all)).toEqual(['a=1', 'b=1', 'd=1']);

  disk.isFull = false;
  await kv.batch([put('f', '4')], { sync: true });
  expect(await entriesOf(memory, all)).toEqual(['a=1', 'b=2', 'c=2', 'e=3', 'f=4']);
  expect(faults).toEqual([null, 'write: no space left on the device', 'write: no space left on the device', null]);
  await kv.close();
});

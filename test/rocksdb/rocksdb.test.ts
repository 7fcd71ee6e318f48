import { EventEmitter, once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { LibraryMissing, load } from '#rocksdb/librocksdb.js';
import { RocksDb } from '#rocksdb/rocksdb.js';
import { WorkerClient } from '#threads/worker-client.js';
import { temporaryFolder } from '../store/temporary-folder.js';
import type { DatabaseAsks } from './database-worker.js';

const entry = 'test/rocksdb/database-worker.js';
const key = (text: string): Buffer => Buffer.from(text);

async function expectWritten(folder: string): Promise<void> {
  const database = await RocksDb.open(folder, false);
  expect(await database.getMany([key('key 0')])).toHaveLength(1);
  await database.close();
}

describe('`RocksDb`', () => {
  it('`RocksDb` can open its folder again after the thread of the database was terminated during native calls', async () => {
    const folder = temporaryFolder();
    for (let round = 0; round < 20; round++) {
      const thread = new WorkerClient<DatabaseAsks>(
        { entry, name: 'a thread' },
        { failed: (reason) => expect.fail(reason) },
      );
      await thread.request('begin', [folder]);
      await delay(round);
      await thread.end('enough');
      await expectWritten(folder);
    }
  });

  it('`RocksDb` can open its folder again after the thread was terminated while it opened the database', async () => {
    const folder = temporaryFolder();
    for (let round = 0; round < 30; round++) {
      const thread = new WorkerClient<DatabaseAsks>(
        { entry, name: 'a thread' },
        { failed: (reason) => expect.fail(reason) },
      );
      await thread.request('ready', []);
      const begun = thread.request('begin', [folder]).catch(() => {});
      await delay(round / 10);
      await thread.end('enough');
      await begun;
      await expectWritten(folder);
    }
  });

  it('`RocksDb` can open its folder again after the thread of the database ended with an uncaught error', async () => {
    const folder = temporaryFolder();
    for (let round = 0; round < 10; round++) {
      const events = new EventEmitter();
      const died = once(events, 'died');
      const thread = new WorkerClient<DatabaseAsks>(
        { entry, name: 'a thread' },
        { failed: (reason) => events.emit('died', reason) },
      );
      await thread.request('begin', [folder]);
      await thread.request('fail', []).catch(() => {});
      expect(await died).toEqual(['a thread died: as asked']);
      await expectWritten(folder);
    }
  });

  it('`RocksDb` can open its folder again after the thread that opened the database exited during the call', async () => {
    const folder = temporaryFolder();
    for (let round = 0; round < 5; round++) {
      const events = new EventEmitter();
      const died = once(events, 'died');
      const thread = new WorkerClient<DatabaseAsks>(
        { entry, name: 'a thread' },
        { failed: (reason) => events.emit('died', reason) },
      );
      await thread.request('exitWhileOpening', [folder]).catch(() => {});
      expect(await died).toEqual(['a thread ended with exit code 7']);
      await expectWritten(folder);
    }
  });

  it('`RocksDb` queues 1,000 concurrent calls, more than koffi runs at the same time', async () => {
    const database = await RocksDb.open(temporaryFolder(), false);
    const keys = Array.from({ length: 1_000 }, (_, at) => key(`key ${at}`));
    await Promise.all(keys.map((one) => database.write([{ key: one, value: one }], false)));
    expect(await Promise.all(keys.map(async (one) => (await database.getMany([one]))[0]))).toEqual(keys);
    await database.close();
  });

  it('`RocksDb` keeps a reference to each buffer that a native call reads, so that garbage collection does not free the buffer', async () => {
    const database = await RocksDb.open(temporaryFolder(), false);
    for (let round = 0; round < 50; round++) {
      const value = Buffer.alloc(100_000, round);
      const reads = Array.from({ length: 20 }, async (_, at) => {
        await database.write([{ key: key(`${at}`), value: Buffer.from(value) }], false);
        return (await database.getMany(Array.from({ length: 20 }, () => key(`${at}`)))).every((one) =>
          one?.equals(value),
        );
      });
      Array.from({ length: 2_000 }, () => Buffer.allocUnsafeSlow(10_000));
      expect((await Promise.all(reads)).every(Boolean)).toBe(true);
    }
    await database.close();
  });
});

it('`RocksDb` writes a Bloom filter into each table file, so that a read of a missing key does not search every table file', async () => {
  const folder = temporaryFolder();
  const database = await RocksDb.open(folder, false);
  for (let at = 0; at < 3; at++) {
    await database.write([{ key: key(`key ${at}`), value: Buffer.alloc(5 * 1024 * 1024, at) }], false);
  }
  await database.close();
  await expectWritten(folder);
  const tables = readdirSync(folder).filter((name) => name.endsWith('.sst'));
  const filtered = tables.filter((name) => readFileSync(join(folder, name)).includes('rocksdb.BuiltinBloomFilter'));
  expect([tables.length > 0, filtered]).toEqual([true, tables]);
});

describe('the loader of the RocksDB library', () => {
  const refusalOf = (folder: string): string => {
    try {
      load([folder]);
      return 'loaded';
    } catch (error) {
      return String(error instanceof LibraryMissing ? `missing: ${error.message}` : error);
    }
  };
  const advice =
    'Install the package that librocksdb-dev depends on (Debian 12: librocksdb7.8, Debian 13: librocksdb9.10)';

  it('the loader of the RocksDB library does not report a missing library if the library folder cannot be read', () => {
    const unreadable = `/${'x'.repeat(300)}`;
    expect(refusalOf(unreadable)).toMatch(/^Error: look for librocksdb in \/x+: Error: ENAMETOOLONG/);
  });

  it.each<[files: readonly string[], found: string]>([
    [[], 'no librocksdb.so.N.M in DIR'],
    [['librocksdb.so', 'librocksdb.so.9', 'librocksdb.so.7.8.3'], 'no librocksdb.so.N.M in DIR'],
    [['librocksdb.so.6.11'], 'DIR/librocksdb.so.6.11 is too old'],
    [['librocksdb.so.7.7'], 'DIR/librocksdb.so.7.7 is too old'],
    [
      ['librocksdb.so.7.8', 'librocksdb.so.7.3', 'librocksdb.so.7.10'],
      'DIR/librocksdb.so.7.10: Failed to load shared library: file too short; ' +
        'DIR/librocksdb.so.7.8: Failed to load shared library: file too short; ' +
        'DIR/librocksdb.so.7.3 is too old',
    ],
  ])('the loader of the RocksDB library refuses a library folder that contains only the files %j', (files, found) => {
    const folder = temporaryFolder();
    for (const name of files) writeFileSync(join(folder, name), '');
    expect(refusalOf(folder).replaceAll(folder, 'DIR')).toBe(`missing: load RocksDB 7.8 or later: ${found}. ${advice}`);
  });
});

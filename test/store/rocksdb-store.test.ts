import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { RocksDb } from '#rocksdb/rocksdb.js';
import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
import type { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { built } from '#threads/built-file.js';
import { describeKvStore } from './kv-contract.js';
import { temporaryFolder } from './temporary-folder.js';

const sync = { sync: true };
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'done',
    (error: StoreError) => error.code,
  );

const root = mkdtempSync(join(tmpdir(), 'weir-test-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
describeKvStore('RocksDB store', () => openRocksDbStore(mkdtempSync(join(root, 'db-'))));
describeKvStore('RocksDB store, plain: true', () => openRocksDbStore(mkdtempSync(join(root, 'db-')), { plain: true }));

async function filled(folder: string): Promise<void> {
  const store = await openRocksDbStore(folder);
  await store.put('a', bytes('what was written'), sync);
  await store.close();
}

describe('the RocksDB store on disk', () => {
  it('the RocksDB store on disk has the written values after it is closed and opened again', async () => {
    const folder = temporaryFolder();
    await filled(folder);
    const store = await openRocksDbStore(folder);
    expect(await store.get('a')).toEqual(Buffer.from('what was written'));
    await store.close();
  });

  it('the RocksDB store on disk refuses a second open of the same folder, in the same process and in another process', async () => {
    const folder = temporaryFolder();
    const store = await openRocksDbStore(folder);
    expect(await codeOf(openRocksDbStore(folder))).toBe('store_locked');
    const other = spawnSync(
      process.execPath,
      [
        '--input-type=module',
        '--eval',
        `import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
         console.log(await openRocksDbStore(process.argv[1]).then(() => 'opened', (error) => error.code));`,
        folder,
      ],
      { encoding: 'utf8' },
    );
    expect(other.stdout.trim()).toBe('store_locked');
    await store.close();
  });

  it('the RocksDB store reports store_damaged for a value that was changed, truncated, stored under another key, or written in a newer format', async () => {
    const folder = temporaryFolder();
    await filled(folder);
    const raw = await RocksDb.open(folder, false);
    const [stored] = await raw.getMany([Buffer.from('a')]);
    const checksummed = stored ?? expect.fail('a is missing');
    const put = (key: string, value: Buffer) => raw.write([{ key: Buffer.from(key), value }], true);
    const flipped = Buffer.from(checksummed);
    flipped[checksummed.length - 3] = (flipped[checksummed.length - 3] ?? 0) ^ 1;
    const future = Buffer.from(checksummed);
    future[1] = 2;
    await put('flipped', flipped);
    await put('a', flipped);
    await put('cut', checksummed.subarray(0, -1));
    await put('short', Buffer.from('no'));
    await put('future', future);
    await put('other', checksummed);
    await raw.close();

    const store = await openRocksDbStore(folder);
    const messages = await Promise.all(
      ['a', 'cut', 'short', 'future', 'other'].map((key) =>
        store.get(key).then(
          () => 'served',
          (error: StoreError) => `${error.code}: ${error.message}`,
        ),
      ),
    );
    expect(messages).toEqual([
      'store_damaged: read a: its checksum is wrong',
      'store_damaged: read cut: its length is wrong',
      'store_damaged: read short: it has no valid header',
      'store_damaged: read future: its format is 2, and this build knows format 1',
      'store_damaged: read other: its checksum is wrong',
    ]);
    const walk = async () => {
      for await (const _ of store.iterate({ gte: '', lt: '~' }));
    };
    expect(await codeOf(walk())).toBe('store_damaged');
    await store.close();
  });

  const damages: readonly (readonly [string, (folder: string) => void])[] = [
    ['an overwritten CURRENT file', (folder) => writeFileSync(join(folder, 'CURRENT'), 'nonsense')],
    [
      'a CURRENT file that names a missing manifest',
      (folder) => writeFileSync(join(folder, 'CURRENT'), 'MANIFEST-009999\n'),
    ],
    [
      'a truncated manifest',
      (folder) => {
        const manifest = readdirSync(folder).find((name) => name.startsWith('MANIFEST')) ?? '';
        truncateSync(join(folder, manifest), 10);
      },
    ],
  ];
  it.each(damages)(
    'the RocksDB store reports store_damaged when it opens a damaged database folder: %s',
    async (_, damage) => {
      const folder = temporaryFolder();
      await filled(folder);
      damage(folder);
      expect(await codeOf(openRocksDbStore(folder))).toBe('store_damaged');
    },
  );

  // A socket at the path makes `open` fail, also for root. It stands for a file without permission.
  it.each(['CURRENT', 'MANIFEST', 'IDENTITY', 'log'])(
    'the RocksDB store reports store_unavailable, and not store_damaged, if the file %s exists and cannot be opened',
    async (kind) => {
      const folder = temporaryFolder();
      await filled(folder);
      const store = await openRocksDbStore(folder);
      await store.put('b', bytes('in the log'), sync);
      await store.close();
      const file = readdirSync(folder).find((name) => name.startsWith(kind) || name.endsWith(`.${kind}`)) ?? '';
      rmSync(join(folder, file));
      const server = createServer().listen(join(folder, file));
      onTestFinished(() => void server.close());
      await once(server, 'listening');
      expect(await codeOf(openRocksDbStore(folder))).toBe('store_unavailable');
    },
  );

  it('the RocksDB store opens a folder read-only without changing a file, until a write opens it for writing', async () => {
    const folder = temporaryFolder();
    await filled(folder);
    const listed = () => readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'hex')]);
    const before = listed();
    const store = await openRocksDbStore(folder, { readOnly: true });
    expect(await store.get('a')).toEqual(Buffer.from('what was written'));
    expect(listed()).toEqual(before);
    await store.put('a', bytes('x'), sync);
    expect(await store.get('a')).toEqual(Buffer.from('x'));
    await store.close();
  });

  skipUnless(process.getuid?.() === 0, LACKS.root).test(
    'the RocksDB store accepts writes again after a full disk has free space, and keeps acknowledged writes',
    async () => {
      const folder = temporaryFolder();
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', folder]);
      const database = join(folder, 'store');
      const large = Buffer.from(Array.from({ length: 3 * 1024 * 1024 }, (_, index) => (index * index) >> 3));
      const stores: KvStore[] = [];
      try {
        const store = await openRocksDbStore(database);
        stores.push(store);
        await store.put('a', bytes('first'), sync);
        writeFileSync(join(folder, 'ballast'), Buffer.alloc(2 * 1024 * 1024));
        for (let round = 0; round < 3; round++) {
          const writes = [store.put('b', large, sync), store.put('b', large, sync)];
          expect(await Promise.all(writes.map(codeOf))).toEqual(['store_no_space', 'store_no_space']);
          expect(await store.get('a')).toEqual(Buffer.from('first'));
        }
        rmSync(join(folder, 'ballast'));
        const [, , value] = await Promise.all([
          store.put('c', bytes('after'), sync),
          store.put('d', bytes('after'), sync),
          store.get('a'),
        ]);
        expect(value).toEqual(Buffer.from('first'));
        await store.close();
        const again = await openRocksDbStore(database);
        stores.push(again);
        expect(await again.getMany(['a', 'c', 'd'])).toEqual(
          ['first', 'after', 'after'].map((text) => Buffer.from(text)),
        );
      } finally {
        for (const store of stores) await store.close();
        execFileSync('umount', [folder]);
      }
    },
  );

  skipUnless(process.getuid?.() === 0, LACKS.root).test(
    'the RocksDB store on a full disk reports store_no_space and still reads, and writes when the disk has space',
    async () => {
      const folder = temporaryFolder();
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', folder]);
      let store: KvStore | undefined;
      try {
        const database = join(folder, 'store');
        await filled(database);
        store = await openRocksDbStore(database);
        writeFileSync(join(folder, 'ballast'), Buffer.alloc(1024 * 1024));
        const incompressible = Buffer.from(Array.from({ length: 1500 * 1024 }, (_, index) => (index * index) >> 3));
        expect(await codeOf(store.put('b', incompressible, sync))).toBe('store_no_space');
        await store.close();
        try {
          writeFileSync(join(folder, 'filler'), Buffer.alloc(2 * 1024 * 1024));
        } catch {}
        expect(await codeOf(openRocksDbStore(database))).toBe('store_no_space');
        store = await openRocksDbStore(database, { readOnly: true });
        expect(await store.get('a')).toEqual(Buffer.from('what was written'));
        expect(await codeOf(store.put('a', bytes('second'), sync))).toBe('store_read_only');
        expect(await store.get('a')).toEqual(Buffer.from('what was written'));
        rmSync(join(folder, 'filler'));
        await store.put('a', bytes('second'), sync);
        expect(await store.get('a')).toEqual(Buffer.from('second'));
      } finally {
        await store?.close();
        execFileSync('umount', [folder]);
      }
    },
  );
});

const entriesOf = async (folder: string, readOnly: boolean) => {
  const store = await openRocksDbStore(folder, { readOnly });
  let count = 0;
  for await (const [key, value] of store.iterate({ gte: '', lt: '~' })) {
    if (Buffer.alloc(1_000, Number(key.slice('key '.length))).equals(value)) count += 1;
    else expect.fail(`${key} has another value`);
  }
  await store.close();
  return count;
};

describe('a database folder that the npm package rocksdb 5.2.1 wrote', () => {
  // The archive contains a database folder after two runs of `old-binding-process.js`. The first run wrote
  // the keys 0 to 299 and closed the database. The second run (argument `on`) wrote the same keys again from
  // key 0, and a signal killed it after it had printed 200.
  it('a database folder of the npm package rocksdb 5.2.1 opens with all 300 keys, read-only and for writing', async () => {
    const folder = temporaryFolder();
    execFileSync('tar', ['-xzf', fileURLToPath(new URL('old-binding.tar.gz', import.meta.url)), '-C', folder]);
    expect(await entriesOf(join(folder, 'store'), true)).toBe(300);
    expect(await entriesOf(join(folder, 'store'), false)).toBe(300);
  });
});

// The npm package `rocksdb` aborts the process if Node.js 22 or later loads it.
skipUnless(process.versions.node.startsWith('20.'), 'the npm package rocksdb needs Node.js 20').describe(
  'a database folder written by the npm package rocksdb',
  () => {
    const program = built('test/store/old-binding-process.js');

    it('a database folder of the npm package rocksdb opens with all keys, and the package can write to the folder again afterwards', async () => {
      const folder = temporaryFolder();
      execFileSync(process.execPath, [program, folder]);
      expect(await entriesOf(folder, true)).toBe(3_000);
      expect(await entriesOf(folder, false)).toBe(3_000);
      const store = await openRocksDbStore(folder);
      const written = Array.from({ length: 6_000 }, (_, at) => ({ key: `key ${at}`, value: Buffer.alloc(1_000, at) }));
      await store.batch(
        written.map((one) => ({ ...one, type: 'put' }) as const),
        sync,
      );
      await store.close();
      const again = spawnSync(process.execPath, [program, folder], { encoding: 'utf8' });
      expect([again.status, again.stderr]).toEqual([0, '']);
      expect(await entriesOf(folder, false)).toBe(6_000);
    });

    it('a database folder of the npm package rocksdb has every acknowledged write after its process is killed by SIGKILL', async () => {
      for (let round = 0; round < 5; round++) {
        const folder = temporaryFolder();
        const child = spawn(process.execPath, [program, folder, 'on'], { stdio: ['ignore', 'pipe', 'inherit'] });
        let acknowledged = 0;
        createInterface(child.stdout).on('line', (line) => {
          acknowledged = Number(line);
          if (acknowledged === 500 + round * 1_500) child.kill('SIGKILL');
        });
        const [, signal] = await once(child, 'close');
        expect(signal).toBe('SIGKILL');
        const found = await entriesOf(folder, false);
        expect([acknowledged, acknowledged + 100]).toContain(found);
      }
    });
  },
);

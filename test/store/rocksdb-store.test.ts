import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { StoreError } from '#store/error.js';
import type { KvStore } from '#store/port.js';
import { openRocksDbStore } from '#store/rocksdb-store.js';
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
describeKvStore('plain RocksDB store', () => openRocksDbStore(mkdtempSync(join(root, 'db-')), { plain: true }));

async function filled(folder: string): Promise<void> {
  const store = await openRocksDbStore(folder);
  await store.put('a', bytes('what was written'), sync);
  await store.close();
}

describe('RocksDB store on its disk', () => {
  it('has what was written when it is opened again', async () => {
    const folder = temporaryFolder();
    await filled(folder);
    const store = await openRocksDbStore(folder);
    expect(await store.get('a')).toEqual(Buffer.from('what was written'));
    await store.close();
  });

  it('refuses a second opener in the same process and in another', async () => {
    const folder = temporaryFolder();
    const store = await openRocksDbStore(folder);
    expect(await codeOf(openRocksDbStore(folder))).toBe('store_locked');
    const other = spawnSync(
      process.execPath,
      [
        '--input-type=module',
        '--eval',
        `import { openRocksDbStore } from '#store/rocksdb-store.js';
         console.log(await openRocksDbStore(process.argv[1]).then(() => 'opened', (error) => error.code));`,
        folder,
      ],
      { encoding: 'utf8' },
    );
    expect(other.stdout.trim()).toBe('store_locked');
    await store.close();
  });

  it('notices a value that was changed, cut, or put under another name', async () => {
    const folder = temporaryFolder();
    await filled(folder);
    const raw = createRequire(import.meta.url)('rocksdb')(folder);
    const call = (start: (done: (error: Error | null, value: Buffer) => void) => void) =>
      new Promise<Buffer>((resolve, reject) => {
        start((error, value) => (error ? reject(error) : resolve(value)));
      });
    await call((done) => raw.open(done));
    const sealed = await call((done) => raw.get('a', done));
    const flipped = Buffer.from(sealed);
    flipped[sealed.length - 3] = (flipped[sealed.length - 3] ?? 0) ^ 1;
    const future = Buffer.from(sealed);
    future[1] = 2;
    await call((done) => raw.put('flipped', flipped, done));
    await call((done) => raw.put('a', flipped, done));
    await call((done) => raw.put('cut', sealed.subarray(0, -1), done));
    await call((done) => raw.put('short', 'no', done));
    await call((done) => raw.put('future', future, done));
    await call((done) => raw.put('other', sealed, done));
    await call((done) => raw.close(done));

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
    ['CURRENT overwritten', (folder) => writeFileSync(join(folder, 'CURRENT'), 'nonsense')],
    ['CURRENT naming no manifest', (folder) => writeFileSync(join(folder, 'CURRENT'), 'MANIFEST-009999\n')],
    [
      'the manifest cut',
      (folder) => {
        const manifest = readdirSync(folder).find((name) => name.startsWith('MANIFEST')) ?? '';
        truncateSync(join(folder, manifest), 10);
      },
    ],
  ];
  it.each(damages)('says store_damaged with %s', async (_, damage) => {
    const folder = temporaryFolder();
    await filled(folder);
    damage(folder);
    expect(await codeOf(openRocksDbStore(folder))).toBe('store_damaged');
  });

  it('opens for reading only, and then refuses to write', async () => {
    const folder = temporaryFolder();
    await filled(folder);
    const current = readFileSync(join(folder, 'CURRENT'), 'utf8');
    const store = await openRocksDbStore(folder, { readOnly: true });
    expect(await store.get('a')).toEqual(Buffer.from('what was written'));
    expect(await codeOf(store.put('a', bytes('x'), sync))).toBe('store_read_only');
    await store.close();
    expect(readFileSync(join(folder, 'CURRENT'), 'utf8')).toBe(current);
  });

  it.runIf(process.getuid?.() === 0)('names a full disk, and serves reads from it', async () => {
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
    } finally {
      await store?.close();
      execFileSync('umount', [folder]);
    }
  });
});

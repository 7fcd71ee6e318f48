import { mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type RocksDb from 'rocksdb';
import { seal, unseal } from './envelope.js';
import { StoreError, type StoreErrorCode } from './error.js';
import type { KvOperation, KvRange, KvStore } from './port.js';

const rocksdb = createRequire(import.meta.url)('rocksdb') as typeof RocksDb.default;
type Database = InstanceType<typeof rocksdb>;

const PAGE_ENTRIES = 256;
const PAGE_BYTES = 1024 * 1024;

/** How a value becomes what stands in the database, and back. */
type Envelope = {
  readonly seal: (key: string, value: Uint8Array) => Buffer | Promise<Buffer>;
  readonly unseal: (key: string, stored: Buffer) => Uint8Array | Promise<Uint8Array>;
};
const SEALED: Envelope = { seal, unseal };
const PLAIN: Envelope = {
  // The binding turns what is no Buffer into text.
  seal: (_, value) => Buffer.from(value.buffer, value.byteOffset, value.byteLength),
  unseal: (_, stored) => stored,
};

/**
 * Opens or makes the RocksDB store in `folder`. Throws `store_locked`, `store_damaged`, `store_no_space` or
 * `store_unavailable`. With `readOnly` nothing is written, also not by the opening itself. A `plain` store has no
 * checksums but those of RocksDB, over its blocks: for many small values, each of which may be lost.
 */
export async function openRocksDbStore(
  folder: string,
  options: { readonly readOnly?: boolean; readonly plain?: boolean } = {},
): Promise<KvStore> {
  const readOnly = options.readOnly ?? false;
  const database = rocksdb(folder);
  try {
    if (!readOnly) await mkdir(folder, { recursive: true, mode: 0o700 });
    await done((callback) => database.open({ createIfMissing: !readOnly, readOnly }, callback));
  } catch (error) {
    throw failure(`open the store in ${folder}`, error);
  }
  return new RocksDbStore(database, readOnly, options.plain === true ? PLAIN : SEALED);
}

class RocksDbStore implements KvStore {
  readonly #database: Database;
  readonly #readOnly: boolean;
  readonly #envelope: Envelope;
  readonly #underWay = new Set<Promise<unknown>>();
  #closed: Promise<void> | undefined;

  constructor(database: Database, readOnly: boolean, envelope: Envelope) {
    this.#database = database;
    this.#readOnly = readOnly;
    this.#envelope = envelope;
  }

  async get(key: string): Promise<Uint8Array | null> {
    const [value] = await this.getMany([key]);
    return value ?? null;
  }

  async getMany(keys: readonly string[]): Promise<(Uint8Array | null)[]> {
    const values = await this.#run(`read ${keys.join(', ')}`, () =>
      result<(Buffer | undefined)[]>((callback) => this.#database.getMany(keys.map(bytesOf), callback)),
    );
    return Promise.all(
      keys.map(async (key, index) => {
        const value = values[index];
        return value === undefined ? null : this.#envelope.unseal(key, value);
      }),
    );
  }

  put(key: string, value: Uint8Array, options: { readonly sync: boolean }): Promise<void> {
    return this.batch([{ type: 'put', key, value }], options);
  }

  delete(key: string, options: { readonly sync: boolean }): Promise<void> {
    return this.batch([{ type: 'delete', key }], options);
  }

  async batch(operations: readonly KvOperation[], { sync }: { readonly sync: boolean }): Promise<void> {
    if (this.#readOnly) throw new StoreError('store_read_only', 'write: the store was opened for reading only');
    const values = await Promise.all(
      operations.map(async (operation) =>
        operation.type === 'put' ? this.#envelope.seal(operation.key, operation.value) : null,
      ),
    );
    // One call an operation costs a quarter of an array of objects.
    await this.#run('write', () => {
      const batch = this.#database.batch();
      for (const [at, { key }] of operations.entries()) {
        const value = values[at] ?? null;
        if (value === null) batch.del(key);
        else batch.put(key, value);
      }
      return done((callback) => {
        batch.write({ sync }, callback);
      });
    });
  }

  async *iterate(range: KvRange): AsyncGenerator<readonly [string, Uint8Array]> {
    let { gte, lt } = range;
    let left = range.limit ?? Number.POSITIVE_INFINITY;
    while (left > 0) {
      const wanted = Math.min(left, PAGE_ENTRIES);
      const { entries, more } = await this.#run('walk', () =>
        this.#page({ gte, lt, reverse: range.reverse ?? false, limit: wanted }),
      );
      for (const [key, value] of entries) yield [key, await this.#envelope.unseal(key, value)] as const;
      const last = entries.at(-1);
      if (last === undefined || !more) return;
      left -= entries.length;
      if (range.reverse === true) lt = last[0];
      else gte = `${last[0]}\0`;
    }
  }

  /** The native iterator lives in here only: one that outlives the database crashes the process. */
  async #page(range: Required<KvRange>): Promise<{ entries: [string, Buffer][]; more: boolean }> {
    const iterator = this.#database.iterator({ ...range, gte: bytesOf(range.gte), lt: bytesOf(range.lt) });
    const entries: [string, Buffer][] = [];
    let bytes = 0;
    try {
      while (entries.length < range.limit && bytes < PAGE_BYTES) {
        const entry = await new Promise<[Buffer, Buffer] | undefined>((resolve, reject) => {
          iterator.next((error: Error | undefined | null, key: unknown, value: unknown) => {
            if (error) reject(error);
            else resolve(key === undefined ? undefined : [key as Buffer, value as Buffer]);
          });
        });
        if (entry === undefined) return { entries, more: false };
        entries.push([entry[0].toString(), entry[1]]);
        bytes += entry[1].length;
      }
      return { entries, more: true };
    } finally {
      await done((callback) => iterator.end(callback));
    }
  }

  close(): Promise<void> {
    this.#closed ??= (async () => {
      await Promise.allSettled([...this.#underWay]);
      try {
        await done((callback) => this.#database.close(callback));
      } catch (error) {
        throw failure('close the store', error);
      }
    })();
    return this.#closed;
  }

  async #run<T>(doing: string, operation: () => Promise<T>): Promise<T> {
    if (this.#closed !== undefined) throw new StoreError('store_closed', `${doing}: the store is closed`);
    const running = operation();
    this.#underWay.add(running);
    try {
      return await running;
    } catch (error) {
      throw failure(doing, error);
    } finally {
      this.#underWay.delete(running);
    }
  }
}

const bytesOf = (key: string): Buffer => Buffer.from(key);

function done(start: (callback: (error?: Error | null) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    start((error) => (error ? reject(error) : resolve()));
  });
}

function result<T>(start: (callback: (error: Error | undefined | null, value: unknown) => void) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    start((error, value) => (error ? reject(error) : resolve(value as T)));
  });
}

function failure(doing: string, cause: unknown): StoreError {
  if (cause instanceof StoreError) return cause;
  const text = cause instanceof Error ? cause.message : String(cause);
  const code = codeOf(text);
  return new StoreError(code, `${doing}: ${text}`, { cause });
}

function codeOf(text: string): StoreErrorCode {
  if (/lock hold by current process|While lock file/i.test(text)) return 'store_locked';
  if (/^Corruption|^Invalid argument|opening a file for sequentially reading/i.test(text)) return 'store_damaged';
  if (/No space left|ENOSPC/i.test(text)) return 'store_no_space';
  return 'store_unavailable';
}

import { makeFolders } from '#files/make-folders.js';
import { LibraryMissing } from '#rocksdb/librocksdb.js';
import { type Page, RocksDb } from '#rocksdb/rocksdb.js';
import { decodeChecksummed, encodeChecksummed } from '#store/records/checksummed-value.js';
import { StoreError, type StoreErrorCode } from '#store/store-error.js';
import type { KvOperation, KvRange, KvStore } from '#store/store-types.js';

const PAGE_ENTRIES = 256;

/**
 * The form of the values in the database. `CHECKSUMMED` adds a checksum to each value, and `PLAIN` does not
 * change the values.
 */
type ValueCodec = {
  readonly encode: (key: string, value: Uint8Array) => Buffer | Promise<Buffer>;
  readonly decode: (key: string, stored: Buffer) => Uint8Array | Promise<Uint8Array>;
};
const CHECKSUMMED: ValueCodec = { encode: encodeChecksummed, decode: decodeChecksummed };
const PLAIN: ValueCodec = {
  encode: (_, value) => Buffer.from(value.buffer, value.byteOffset, value.byteLength),
  decode: (_, stored) => stored,
};

/**
 * Opens or creates the RocksDB store in `folder`. Throws `store_locked`, `store_damaged`, `store_no_space`,
 * `store_library_missing` or `store_unavailable`. With `readOnly`, opening writes nothing to the disk; the
 * first write opens the store again for writing. A `plain` store has no checksum for each value, and relies
 * on the block checksums of RocksDB. Use it for many small values that may be lost.
 */
export async function openRocksDbStore(
  folder: string,
  options: { readonly readOnly?: boolean; readonly plain?: boolean } = {},
): Promise<KvStore> {
  const readOnly = options.readOnly ?? false;
  try {
    if (!readOnly) makeFolders(folder, 0o700);
    const database = await RocksDb.open(folder, readOnly);
    return new RocksDbStore(folder, database, readOnly, options.plain === true ? PLAIN : CHECKSUMMED);
  } catch (error) {
    throw failure(`open the store in ${folder}`, error);
  }
}

class RocksDbStore implements KvStore {
  readonly #folder: string;
  /**
   * The open database. Null if the database was closed after a failed write and could not be opened again.
   */
  #database: RocksDb | null;
  /** Whether the next write must open the database again: a write failed, or the database is read-only. */
  #mustReopen: boolean;
  #reopening: Promise<StoreError | null> | undefined;
  readonly #codec: ValueCodec;
  readonly #underWay = new Set<Promise<unknown>>();
  #closed: Promise<void> | undefined;

  constructor(folder: string, database: RocksDb, readOnly: boolean, codec: ValueCodec) {
    this.#folder = folder;
    this.#database = database;
    this.#mustReopen = readOnly;
    this.#codec = codec;
  }

  async get(key: string): Promise<Uint8Array | null> {
    const [value] = await this.getMany([key]);
    return value ?? null;
  }

  async getMany(keys: readonly string[]): Promise<(Uint8Array | null)[]> {
    const values = await this.#run(`read ${keys.join(', ')}`, (database) => database.getMany(keys.map(bytesOf)));
    return Promise.all(
      keys.map(async (key, index) => {
        const value = values[index] ?? null;
        return value === null ? null : this.#codec.decode(key, value);
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
    const encoded = await Promise.all(
      operations.map(async (operation) => ({
        key: bytesOf(operation.key),
        value: operation.type === 'put' ? await this.#codec.encode(operation.key, operation.value) : null,
      })),
    );
    const refused = this.#mustReopen && this.#closed === undefined ? await this.#reopen() : null;
    if (refused !== null) throw refused;
    try {
      await this.#run('write', (database) => database.write(encoded, sync));
    } catch (error) {
      this.#mustReopen ||= !(error instanceof StoreError && error.code === 'store_closed');
      throw error;
    }
  }

  async *iterate(range: KvRange): AsyncGenerator<readonly [string, Uint8Array]> {
    let { gte, lt } = range;
    let left = range.limit ?? Number.POSITIVE_INFINITY;
    while (left > 0) {
      const wanted = Math.min(left, PAGE_ENTRIES);
      const { entries, more }: Page = await this.#run('walk', async (database) =>
        database.page(bytesOf(gte), bytesOf(lt), range.reverse ?? false, wanted),
      );
      let last: string | undefined;
      for (const [bytes, value] of entries) {
        last = bytes.toString();
        yield [last, await this.#codec.decode(last, value)] as const;
      }
      if (last === undefined || !more) return;
      left -= entries.length;
      if (range.reverse === true) lt = last;
      else gte = `${last}\0`;
    }
  }

  close(): Promise<void> {
    this.#closed ??= (async () => {
      await this.#reopening;
      await Promise.allSettled([...this.#underWay]);
      await this.#database?.close();
    })();
    return this.#closed;
  }

  /**
   * Opens the database again for writing: after a failed write, RocksDB refuses all writes until it is opened
   * again. If this fails, for example on a full disk, opens the database read-only, and returns the failure.
   */
  #reopen(): Promise<StoreError | null> {
    const before = [...this.#underWay];
    this.#reopening ??= (async () => {
      await Promise.allSettled(before);
      await this.#database?.close();
      this.#database = null;
      try {
        this.#database = await RocksDb.open(this.#folder, false);
        this.#mustReopen = false;
        return null;
      } catch (cause) {
        this.#database = await RocksDb.open(this.#folder, true).catch(() => null);
        const { message } = failure(`open the store in ${this.#folder} for writing`, cause);
        return new StoreError('store_read_only', message, { cause });
      }
    })().finally(() => {
      this.#reopening = undefined;
    });
    return this.#reopening;
  }

  async #run<T>(doing: string, operation: (database: RocksDb) => Promise<T>): Promise<T> {
    if (this.#closed !== undefined) throw new StoreError('store_closed', `${doing}: the store is closed`);
    const running = this.#whenOpen(operation);
    this.#underWay.add(running);
    try {
      return await running;
    } catch (error) {
      throw failure(doing, error);
    } finally {
      this.#underWay.delete(running);
    }
  }

  async #whenOpen<T>(operation: (database: RocksDb) => Promise<T>): Promise<T> {
    if (this.#reopening !== undefined) await this.#reopening;
    if (this.#database === null) throw new Error('the database failed to write, and could not be opened again');
    return operation(this.#database);
  }
}

const bytesOf = (key: string): Buffer => Buffer.from(key);

function failure(doing: string, cause: unknown): StoreError {
  if (cause instanceof StoreError) return cause;
  if (cause instanceof LibraryMissing) return new StoreError('store_library_missing', cause.message, { cause });
  const text = cause instanceof Error ? cause.message : String(cause);
  const code = codeOf(text);
  return new StoreError(code, `${doing}: ${text}`, { cause });
}

function codeOf(text: string): StoreErrorCode {
  if (/lock hold by current process|While lock file/i.test(text)) return 'store_locked';
  if (/No space left|ENOSPC/i.test(text)) return 'store_no_space';
  // Do not report damage if a file exists and cannot be opened, for example without permission or without a
  // free file descriptor.
  if (/IO error: (?!No such file or directory)/.test(text)) return 'store_unavailable';
  if (/^Corruption|^Invalid argument|opening a file for sequentially reading/i.test(text)) return 'store_damaged';
  return 'store_unavailable';
}

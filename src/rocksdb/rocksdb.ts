import { isMainThread } from 'node:worker_threads';
import { type Address, addressOf, copyAt } from '#libc/library.js';
import { guarded } from '#libc/termination-guard.js';
import { beside, closeWithThread, ErrorSlot, librocksdb, takeError } from './librocksdb.js';

// Values of RocksDB's C enums CompressionType and InfoLogLevel.
const SNAPPY = 1;
const HEADER_LEVEL = 5;
/**
 * The table format version. By default, RocksDB 7.8 writes XXH3 checksums, which RocksDB versions before 6.29
 * report as damage. With `FORMAT_VERSION` and `CRC32C`, these versions can read the files.
 */
const FORMAT_VERSION = 5;
const CRC32C = 1;
/**
 * Bits per key of the Bloom filter. Most new findings have keys that are not in the database. For these keys,
 * the filter avoids 99 % of the table reads.
 */
const FILTER_BITS_OF_KEY = 10;

const WRITE_BUFFER_BYTES = 4 * 1024 * 1024;
const OPEN_FILES = 1_000;
const PAGE_BYTES = 1024 * 1024;

export type Operation = {
  readonly key: Buffer;
  /** The new value; null deletes the key. */
  readonly value: Buffer | null;
};
export type Page = {
  readonly entries: readonly (readonly [key: Buffer, value: Buffer])[];
  /** Whether the range may contain more entries after the last entry of this page. */
  readonly more: boolean;
};

/**
 * A RocksDB database. Methods throw errors with RocksDB's own text. No method may be called during or after
 * `close`.
 */
export class RocksDb {
  readonly #database: Address;
  readonly #revokeClose: () => void;
  readonly #reading: Address;
  readonly #writing: Address;
  readonly #syncing: Address;
  /**
   * The key bounds of open iterators. RocksDB keeps only pointers to these buffers, so this set prevents the
   * garbage collector from freeing them.
   */
  readonly #bounds = new Set<Buffer>();

  private constructor(database: Address) {
    const lib = librocksdb();
    this.#database = database;
    this.#revokeClose = closeWithThread(database);
    this.#reading = lib.rocksdb_readoptions_create();
    this.#writing = lib.rocksdb_writeoptions_create();
    this.#syncing = lib.rocksdb_writeoptions_create();
    lib.rocksdb_writeoptions_set_sync(this.#syncing, 1);
  }

  /**
   * Opens the database in a folder, and creates the database if the folder has none. With `readOnly`, creates
   * and writes nothing.
   */
  static async open(folder: string, readOnly: boolean): Promise<RocksDb> {
    const lib = librocksdb();
    const options = lib.rocksdb_options_create();
    const tables = lib.rocksdb_block_based_options_create();
    try {
      lib.rocksdb_block_based_options_set_format_version(tables, FORMAT_VERSION);
      lib.rocksdb_block_based_options_set_checksum(tables, CRC32C);
      lib.rocksdb_block_based_options_set_filter_policy(
        tables,
        lib.rocksdb_filterpolicy_create_bloom_full(FILTER_BITS_OF_KEY),
      );
      lib.rocksdb_options_set_block_based_table_factory(options, tables);
      lib.rocksdb_options_set_create_if_missing(options, readOnly ? 0 : 1);
      lib.rocksdb_options_set_compression(options, SNAPPY);
      lib.rocksdb_options_set_write_buffer_size(options, WRITE_BUFFER_BYTES);
      lib.rocksdb_options_set_max_open_files(options, OPEN_FILES);
      lib.rocksdb_options_set_info_log_level(options, HEADER_LEVEL);
      lib.rocksdb_options_set_stats_dump_period_sec(options, 0);
      // Keep only the newest log file. By default each opening of the database leaves a log file.
      lib.rocksdb_options_set_keep_log_file_num(options, 1);
      // With a log folder that cannot exist, RocksDB writes no log file. Otherwise opening read-only would
      // write to the disk.
      if (readOnly) lib.rocksdb_options_set_db_log_dir(options, '/dev/null/none');
      const error = new ErrorSlot();
      const made = (database: Address): RocksDb => {
        error.check();
        return new RocksDb(database);
      };
      const { rocksdb_open_for_read_only: openReadOnly, rocksdb_open: openForWrites } = lib;
      if (isMainThread)
        return made(
          await (readOnly
            ? beside(openReadOnly, [options, folder, 0, error.slot])
            : beside(openForWrites, [options, folder, error.slot])),
        );
      // A worker thread waits for the native call, and the parent cannot terminate the thread before
      // `closeWithThread` was called. Otherwise nothing would close the database of a thread that ends during
      // the call, and the process would keep its lock.
      return guarded(() =>
        made(readOnly ? openReadOnly(options, folder, 0, error.slot) : openForWrites(options, folder, error.slot)),
      );
    } finally {
      lib.rocksdb_block_based_options_destroy(tables);
      lib.rocksdb_options_destroy(options);
    }
  }

  /** Returns the values in the order of `keys`, with null for a key that is not in the database. */
  async getMany(keys: readonly Buffer[]): Promise<(Buffer | null)[]> {
    const lib = librocksdb();
    const count = keys.length;
    if (count === 0) return [];
    const addresses = BigUint64Array.from(keys, (key) => addressOf(key));
    const lengths = BigUint64Array.from(keys, (key) => BigInt(key.length));
    const values = new BigUint64Array(count);
    const valueLengths = new BigUint64Array(count);
    const errors = new BigUint64Array(count);
    await beside(
      lib.rocksdb_multi_get,
      [this.#database, this.#reading, count, addresses, lengths, values, valueLengths, errors],
      keys,
    );
    const failures: Error[] = [];
    const found = Array.from(values, (pointer, at) => {
      const failure = takeError(errors, at);
      if (failure !== null) failures.push(failure);
      const address = Number(pointer);
      if (address === 0) return null;
      const value = copyAt(address, Number(valueLengths[at]));
      lib.rocksdb_free(address);
      return value;
    });
    const [failure] = failures;
    if (failure !== undefined) throw failure;
    return found;
  }

  /** Writes all operations in order, or none of them. */
  async write(operations: readonly Operation[], sync: boolean): Promise<void> {
    const lib = librocksdb();
    const batch = lib.rocksdb_writebatch_create();
    try {
      for (const { key, value } of operations) {
        if (value === null) lib.rocksdb_writebatch_delete(batch, key, key.length);
        else lib.rocksdb_writebatch_put(batch, key, key.length, value, value.length);
      }
      const error = new ErrorSlot();
      await beside(lib.rocksdb_write, [this.#database, sync ? this.#syncing : this.#writing, batch, error.slot]);
      error.check();
    } finally {
      lib.rocksdb_writebatch_destroy(batch);
    }
  }

  /**
   * Returns the first entries from `gte` to `lt` (exclusive); with `reverse`, the last entries in descending
   * order. Returns at most `limit` entries, and stops after about 1 MiB of values. This method must be
   * synchronous: if an error ended the thread while an iterator is open, `rocksdb_close` would abort the
   * process.
   */
  page(gte: Buffer, lt: Buffer, reverse: boolean, limit: number): Page {
    return guarded(() => {
      const lib = librocksdb();
      const options = lib.rocksdb_readoptions_create();
      lib.rocksdb_readoptions_set_iterate_lower_bound(options, gte, gte.length);
      lib.rocksdb_readoptions_set_iterate_upper_bound(options, lt, lt.length);
      this.#bounds.add(gte).add(lt);
      const iterator = lib.rocksdb_create_iterator(this.#database, options);
      try {
        if (reverse) lib.rocksdb_iter_seek_to_last(iterator);
        else lib.rocksdb_iter_seek_to_first(iterator);
        return entriesAt(iterator, reverse, limit);
      } finally {
        lib.rocksdb_iter_destroy(iterator);
        lib.rocksdb_readoptions_destroy(options);
        this.#bounds.clear();
      }
    });
  }

  async close(): Promise<void> {
    const lib = librocksdb();
    this.#revokeClose();
    await beside(lib.rocksdb_close, [this.#database]);
    lib.rocksdb_readoptions_destroy(this.#reading);
    lib.rocksdb_writeoptions_destroy(this.#writing);
    lib.rocksdb_writeoptions_destroy(this.#syncing);
  }
}

function entriesAt(iterator: Address, reverse: boolean, limit: number): Page {
  const lib = librocksdb();
  const length = new BigUint64Array(1);
  const entries: [Buffer, Buffer][] = [];
  let bytes = 0;
  while (entries.length < limit && bytes < PAGE_BYTES) {
    if (lib.rocksdb_iter_valid(iterator) === 0) {
      const error = new ErrorSlot();
      lib.rocksdb_iter_get_error(iterator, error.slot);
      error.check();
      return { entries, more: false };
    }
    const keyAddress = lib.rocksdb_iter_key(iterator, length);
    const key = copyAt(keyAddress, Number(length[0]));
    const valueAddress = lib.rocksdb_iter_value(iterator, length);
    const value = copyAt(valueAddress, Number(length[0]));
    entries.push([key, value]);
    bytes += value.length;
    if (reverse) lib.rocksdb_iter_prev(iterator);
    else lib.rocksdb_iter_next(iterator);
  }
  return { entries, more: true };
}

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { u32At } from '#arrays/read.js';
import { type Address, bindLibrary, textAt } from '#libc/library.js';
import { guardedUntilDone } from '#libc/termination-guard.js';

/**
 * Functions of RocksDB's C API (`rocksdb/c.h`). Objects are represented by their addresses; 0 is a null
 * pointer.
 */
type LibRocksDb = {
  rocksdb_options_create(): Address;
  rocksdb_options_destroy(options: Address): void;
  rocksdb_options_set_create_if_missing(options: Address, isSet: number): void;
  rocksdb_options_set_compression(options: Address, compression: number): void;
  rocksdb_options_set_write_buffer_size(options: Address, bytes: number): void;
  rocksdb_options_set_max_open_files(options: Address, files: number): void;
  rocksdb_options_set_info_log_level(options: Address, level: number): void;
  rocksdb_options_set_db_log_dir(options: Address, folder: string): void;
  rocksdb_options_set_keep_log_file_num(options: Address, files: number): void;
  rocksdb_options_set_stats_dump_period_sec(options: Address, seconds: number): void;
  rocksdb_options_set_block_based_table_factory(options: Address, tables: Address): void;
  rocksdb_block_based_options_create(): Address;
  rocksdb_block_based_options_destroy(tables: Address): void;
  rocksdb_block_based_options_set_format_version(tables: Address, version: number): void;
  rocksdb_block_based_options_set_checksum(tables: Address, checksum: number): void;
  rocksdb_filterpolicy_create_bloom_full(bitsOfKey: number): Address;
  /** Takes ownership of the filter policy: RocksDB frees it together with the table options. */
  rocksdb_block_based_options_set_filter_policy(tables: Address, filter: Address): void;
  rocksdb_open: Beside<[options: Address, folder: string, error: BigUint64Array], Address>;
  rocksdb_open_for_read_only: Beside<
    [options: Address, folder: string, refusesLog: number, error: BigUint64Array],
    Address
  >;
  rocksdb_close: Beside<[database: Address], void>;
  rocksdb_readoptions_create(): Address;
  rocksdb_readoptions_destroy(options: Address): void;
  rocksdb_readoptions_set_iterate_lower_bound(options: Address, key: Uint8Array, length: number): void;
  rocksdb_readoptions_set_iterate_upper_bound(options: Address, key: Uint8Array, length: number): void;
  rocksdb_multi_get: Beside<
    [
      database: Address,
      options: Address,
      count: number,
      keys: BigUint64Array,
      keyLengths: BigUint64Array,
      values: BigUint64Array,
      valueLengths: BigUint64Array,
      errors: BigUint64Array,
    ],
    void
  >;
  rocksdb_writeoptions_create(): Address;
  rocksdb_writeoptions_destroy(options: Address): void;
  rocksdb_writeoptions_set_sync(options: Address, isSet: number): void;
  rocksdb_writebatch_create(): Address;
  rocksdb_writebatch_destroy(batch: Address): void;
  rocksdb_writebatch_put(batch: Address, key: Uint8Array, keyLength: number, value: Uint8Array, length: number): void;
  rocksdb_writebatch_delete(batch: Address, key: Uint8Array, keyLength: number): void;
  rocksdb_write: Beside<[database: Address, options: Address, batch: Address, error: BigUint64Array], void>;
  rocksdb_create_iterator(database: Address, options: Address): Address;
  rocksdb_iter_destroy(iterator: Address): void;
  rocksdb_iter_seek_to_first(iterator: Address): void;
  rocksdb_iter_seek_to_last(iterator: Address): void;
  rocksdb_iter_valid(iterator: Address): number;
  rocksdb_iter_next(iterator: Address): void;
  rocksdb_iter_prev(iterator: Address): void;
  rocksdb_iter_key(iterator: Address, length: BigUint64Array): Address;
  rocksdb_iter_value(iterator: Address, length: BigUint64Array): Address;
  rocksdb_iter_get_error(iterator: Address, error: BigUint64Array): void;
  rocksdb_free(memory: Address): void;
};

const LIBROCKSDB: Record<keyof LibRocksDb, string> = {
  rocksdb_options_create: 'uint64_t rocksdb_options_create()',
  rocksdb_options_destroy: 'void rocksdb_options_destroy(uint64_t options)',
  rocksdb_options_set_create_if_missing:
    'void rocksdb_options_set_create_if_missing(uint64_t options, uint8_t create_if_missing)',
  rocksdb_options_set_compression: 'void rocksdb_options_set_compression(uint64_t options, int compression)',
  rocksdb_options_set_write_buffer_size: 'void rocksdb_options_set_write_buffer_size(uint64_t options, size_t bytes)',
  rocksdb_options_set_max_open_files: 'void rocksdb_options_set_max_open_files(uint64_t options, int files)',
  rocksdb_options_set_info_log_level: 'void rocksdb_options_set_info_log_level(uint64_t options, int level)',
  rocksdb_options_set_db_log_dir: 'void rocksdb_options_set_db_log_dir(uint64_t options, const char *folder)',
  rocksdb_options_set_keep_log_file_num: 'void rocksdb_options_set_keep_log_file_num(uint64_t options, size_t files)',
  rocksdb_options_set_stats_dump_period_sec:
    'void rocksdb_options_set_stats_dump_period_sec(uint64_t options, uint32_t seconds)',
  rocksdb_options_set_block_based_table_factory:
    'void rocksdb_options_set_block_based_table_factory(uint64_t options, uint64_t tables)',
  rocksdb_block_based_options_create: 'uint64_t rocksdb_block_based_options_create()',
  rocksdb_block_based_options_destroy: 'void rocksdb_block_based_options_destroy(uint64_t tables)',
  rocksdb_block_based_options_set_format_version:
    'void rocksdb_block_based_options_set_format_version(uint64_t tables, int version)',
  rocksdb_block_based_options_set_checksum:
    'void rocksdb_block_based_options_set_checksum(uint64_t tables, int8_t checksum)',
  rocksdb_filterpolicy_create_bloom_full: 'uint64_t rocksdb_filterpolicy_create_bloom_full(double bits_of_key)',
  rocksdb_block_based_options_set_filter_policy:
    'void rocksdb_block_based_options_set_filter_policy(uint64_t tables, uint64_t filter)',
  rocksdb_open: 'uint64_t rocksdb_open(uint64_t options, const char *folder, _Inout_ void *error)',
  rocksdb_open_for_read_only:
    'uint64_t rocksdb_open_for_read_only(uint64_t options, const char *folder, uint8_t refuses_log, _Inout_ void *error)',
  rocksdb_close: 'void rocksdb_close(uint64_t database)',
  rocksdb_readoptions_create: 'uint64_t rocksdb_readoptions_create()',
  rocksdb_readoptions_destroy: 'void rocksdb_readoptions_destroy(uint64_t options)',
  rocksdb_readoptions_set_iterate_lower_bound:
    'void rocksdb_readoptions_set_iterate_lower_bound(uint64_t options, const void *key, size_t length)',
  rocksdb_readoptions_set_iterate_upper_bound:
    'void rocksdb_readoptions_set_iterate_upper_bound(uint64_t options, const void *key, size_t length)',
  rocksdb_multi_get:
    'void rocksdb_multi_get(uint64_t database, uint64_t options, size_t count, const void *keys, const void *key_lengths, _Out_ void *values, _Out_ void *value_lengths, _Inout_ void *errors)',
  rocksdb_writeoptions_create: 'uint64_t rocksdb_writeoptions_create()',
  rocksdb_writeoptions_destroy: 'void rocksdb_writeoptions_destroy(uint64_t options)',
  rocksdb_writeoptions_set_sync: 'void rocksdb_writeoptions_set_sync(uint64_t options, uint8_t sync)',
  rocksdb_writebatch_create: 'uint64_t rocksdb_writebatch_create()',
  rocksdb_writebatch_destroy: 'void rocksdb_writebatch_destroy(uint64_t batch)',
  rocksdb_writebatch_put:
    'void rocksdb_writebatch_put(uint64_t batch, const void *key, size_t key_length, const void *value, size_t length)',
  rocksdb_writebatch_delete: 'void rocksdb_writebatch_delete(uint64_t batch, const void *key, size_t key_length)',
  rocksdb_write: 'void rocksdb_write(uint64_t database, uint64_t options, uint64_t batch, _Inout_ void *error)',
  rocksdb_create_iterator: 'uint64_t rocksdb_create_iterator(uint64_t database, uint64_t options)',
  rocksdb_iter_destroy: 'void rocksdb_iter_destroy(uint64_t iterator)',
  rocksdb_iter_seek_to_first: 'void rocksdb_iter_seek_to_first(uint64_t iterator)',
  rocksdb_iter_seek_to_last: 'void rocksdb_iter_seek_to_last(uint64_t iterator)',
  rocksdb_iter_valid: 'uint8_t rocksdb_iter_valid(uint64_t iterator)',
  rocksdb_iter_next: 'void rocksdb_iter_next(uint64_t iterator)',
  rocksdb_iter_prev: 'void rocksdb_iter_prev(uint64_t iterator)',
  rocksdb_iter_key: 'uint64_t rocksdb_iter_key(uint64_t iterator, _Out_ void *length)',
  rocksdb_iter_value: 'uint64_t rocksdb_iter_value(uint64_t iterator, _Out_ void *length)',
  rocksdb_iter_get_error: 'void rocksdb_iter_get_error(uint64_t iterator, _Inout_ void *error)',
  rocksdb_free: 'void rocksdb_free(uint64_t memory)',
};

type Threads = {
  dlopen(path: string, flags: number): Address;
  dlsym(library: Address, name: string): Address;
  pthread_key_create(key: Uint32Array, destructor: Address): number;
  pthread_key_delete(key: number): number;
  pthread_setspecific(key: number, value: Address): number;
};
const THREADS: Record<keyof Threads, string> = {
  dlopen: 'uint64_t dlopen(const char *path, int flags)',
  dlsym: 'uint64_t dlsym(uint64_t library, const char *name)',
  pthread_key_create: 'int pthread_key_create(_Out_ void *key, uint64_t destructor)',
  pthread_key_delete: 'int pthread_key_delete(uint32_t key)',
  pthread_setspecific: 'int pthread_setspecific(uint32_t key, uint64_t value)',
};
const RTLD_NOW = 2;
const RTLD_NODELETE = 0x1000;

/**
 * The oldest supported RocksDB version. Older versions lack functions that this file uses. If they were built
 * with the `std::regex` of libstdc++, they also fail to load with RTLD_DEEPBIND.
 */
const OLDEST = [7, 8] as const;
const TRIPLETS: Partial<Record<NodeJS.Architecture, string>> = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' };
const TRIPLET = TRIPLETS[process.arch];
const FOLDERS = ['/usr/local/lib', ...(TRIPLET === undefined ? [] : [`/usr/lib/${TRIPLET}`]), '/usr/lib64', '/usr/lib'];

/** RocksDB is not installed, or the installed version is too old. */
export class LibraryMissing extends Error {}

type Loaded = { readonly calls: LibRocksDb; readonly threads: Threads; readonly closeAddress: Address };
let loaded: Loaded | undefined;

/**
 * Returns the functions of the RocksDB library that is installed on this machine. Throws `LibraryMissing` if
 * no library is usable.
 */
export function librocksdb(): LibRocksDb {
  loaded ??= load(FOLDERS);
  return loaded.calls;
}

/**
 * Loads the newest usable RocksDB library in these folders. Throws `LibraryMissing` if no library is usable.
 */
export function load(folders: readonly string[]): Loaded {
  const wanted = `RocksDB ${OLDEST.join('.')} or later`;
  const found = folders.flatMap((folder) => librariesIn(folder)).sort((a, b) => b.major - a.major || b.minor - a.minor);
  const failures: string[] = [];
  for (const { path, major, minor } of found) {
    if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
      failures.push(`${path} is too old`);
      continue;
    }
    try {
      return bind(path);
    } catch (error) {
      failures.push(`${path}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  const what = failures.length === 0 ? `no librocksdb.so.N.M in ${folders.join(', ')}` : failures.join('; ');
  throw new LibraryMissing(
    `load ${wanted}: ${what}. Install the package that librocksdb-dev depends on (Debian 12: librocksdb7.8, Debian 13: librocksdb9.10)`,
  );
}

function bind(path: string): Loaded {
  // Load with RTLD_DEEPBIND. Without this flag, the C++ and compression symbols that Node exports would
  // replace the symbols of the library, and RocksDB would abort the process.
  const calls = bindLibrary<LibRocksDb>(path, LIBROCKSDB, { deep: true });
  const threads = bindLibrary<Threads>(null, THREADS);
  // RTLD_NODELETE keeps the library loaded: its threads outlive the Node.js thread that loaded it.
  const library = threads.dlopen(path, RTLD_NOW | RTLD_NODELETE);
  return { calls, threads, closeAddress: threads.dlsym(library, 'rocksdb_close') };
}

function isAbsent(failure: unknown): boolean {
  return failure instanceof Error && 'code' in failure && (failure.code === 'ENOENT' || failure.code === 'ENOTDIR');
}

function librariesIn(folder: string): { path: string; major: number; minor: number }[] {
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch (failure) {
    // Distinguish a missing folder from a folder that cannot be read, for example because no file descriptor
    // is free. Only a missing folder may lead to `LibraryMissing`.
    if (isAbsent(failure)) return [];
    throw new Error(`look for librocksdb in ${folder}: ${String(failure)}`, { cause: failure });
  }
  return names.flatMap((name) => {
    const version = /^librocksdb\.so\.(\d+)\.(\d+)$/.exec(name);
    return version === null ? [] : [{ path: join(folder, name), major: Number(version[1]), minor: Number(version[2]) }];
  });
}

/**
 * Registers a pthread key destructor that closes the database when this thread ends. Otherwise the process
 * would keep the lock of a database that the thread left open. Returns a function that removes the
 * destructor.
 */
export function closeWithThread(database: Address): () => void {
  librocksdb();
  const { threads, closeAddress } = loaded as Loaded;
  const key = new Uint32Array(1);
  if (threads.pthread_key_create(key, closeAddress) !== 0) return () => {};
  threads.pthread_setspecific(u32At(key, 0), database);
  return () => {
    threads.pthread_setspecific(u32At(key, 0), 0);
    threads.pthread_key_delete(u32At(key, 0));
  };
}

/**
 * The limit of simultaneous native calls; further calls wait in `queued`. koffi throws at 256 asynchronous
 * calls, and each call has its own stack. A higher limit would not be faster, because the libuv thread pool
 * has four threads.
 */
const MAX_CALLS = 8;
let calls = 0;
const queued: (() => void)[] = [];
/**
 * Buffers that RocksDB reads or writes during a native call. Without this set, the garbage collector could
 * free the buffers during the call.
 */
const inUse = new Set<unknown>();

type Beside<Given extends readonly unknown[], Result> = {
  (...given: [...Given]): Result;
  async(...given: [...Given, done: (error: Error | null, result: Result) => void]): void;
};

/**
 * Makes a native call on a thread of the libuv thread pool. Keeps references to `given` and `used` until the
 * call has returned, so that the garbage collector does not free their buffers.
 */
export function beside<Given extends readonly unknown[], Result>(
  call: Beside<Given, Result>,
  given: readonly [...Given],
  used?: unknown,
): Promise<Result> {
  return guardedUntilDone(async () => {
    if (calls >= MAX_CALLS) await new Promise<void>((resolve) => queued.push(resolve));
    else calls++;
    const kept = { given, used };
    inUse.add(kept);
    try {
      return await new Promise<Result>((resolve, reject) => {
        call.async(...given, (error: Error | null, result: Result) => {
          if (error === null) resolve(result);
          else reject(error);
        });
      });
    } finally {
      inUse.delete(kept);
      const next = queued.shift();
      if (next === undefined) calls--;
      else next();
    }
  });
}

/**
 * A C variable for the `char **errptr` parameter of RocksDB functions. `check` throws the error that RocksDB
 * stored, and frees its memory.
 */
export class ErrorSlot {
  readonly slot = new BigUint64Array(1);

  check(): void {
    const failure = takeError(this.slot, 0);
    if (failure !== null) throw failure;
  }
}

/**
 * Returns the error at an index of an array of RocksDB error pointers, or null. Frees the memory of the
 * error.
 */
export function takeError(errors: BigUint64Array, at: number): Error | null {
  const address = Number(errors[at]);
  if (address === 0) return null;
  errors[at] = 0n;
  const text = textAt(address);
  librocksdb().rocksdb_free(address);
  return new Error(text);
}

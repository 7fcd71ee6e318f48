import { addListener } from '#contracts/listeners.js';
import { quarantine } from '#store/disk/data-folder.js';
import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
import { StoreError } from '#store/store-error.js';
import type { FindingListener } from '#store/store-finding.js';
import { type FindingStore, type FindingStoreOptions, MergeError, openFindingStore } from './finding-store.js';

/**
 * Returns a finding store with its own RocksDB database in `folder`. Failures of the database never prevent
 * the start of a node.
 * - A damaged database is renamed, replaced by an empty database and reported to `onFinding`.
 * - After a failure to open or write the database, the call rejects with a `StoreError`, and the next call
 *   opens the database again.
 * - The store keeps no deltas in memory: after a `MergeError`, the caller must keep
 *   the deltas that were not stored.
 */
export function openFindings(folder: string, options: FindingStoreOptions, onFinding: FindingListener): FindingStore {
  return new FindingsFolder(folder, options, onFinding);
}

class FindingsFolder implements FindingStore {
  readonly #folder: string;
  readonly #options: FindingStoreOptions;
  readonly #onFinding: FindingListener;
  readonly #listeners = new Set<() => void>();
  #opening: Promise<FindingStore> | undefined;
  #store: FindingStore | undefined;
  /**
   * Resolves when the previous database is closed. `#opened` waits for this promise, because RocksDB locks an
   * open database.
   */
  #leaving: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(folder: string, options: FindingStoreOptions, onFinding: FindingListener) {
    this.#folder = folder;
    this.#options = options;
    this.#onFinding = onFinding;
  }

  readonly outbox: FindingStore['outbox'] = {
    read: (sink, limit) => this.#with((store) => store.outbox.read(sink, limit)),
    acknowledge: (sink, next) => this.#with((store) => store.outbox.acknowledge(sink, next)),
    progressOf: (sink) => this.#store?.outbox.progressOf(sink) ?? { waiting: 0, dropped: 0 },
    watch: (listener) => {
      return addListener(this.#listeners, listener);
    },
  };

  get count(): number {
    return this.#store?.count ?? 0;
  }

  query: FindingStore['query'] = (query) => this.#with((store) => store.query(query));

  merge: FindingStore['merge'] = async (deltas) => {
    let left = deltas;
    const mergeLeft = (store: FindingStore) =>
      store.merge(left).catch((error: unknown) => {
        if (error instanceof MergeError) left = error.unmerged;
        throw error;
      });
    try {
      await this.#with(mergeLeft);
    } catch (error) {
      // RocksDB refuses all writes after a failed write. Close the database, so that the next merge opens it
      // again.
      await this.#leave();
      throw error instanceof StoreError && !(error instanceof MergeError) ? new MergeError(left, error) : error;
    }
  };

  async close(): Promise<void> {
    this.#closed = true;
    await this.#leave();
  }

  /**
   * Runs `use` on the open store. If `use` throws `store_damaged`, renames the folder of the database and
   * runs `use` once more on a new, empty database.
   */
  async #with<T>(use: (store: FindingStore) => Promise<T>): Promise<T> {
    const store = await this.#open();
    try {
      return await use(store);
    } catch (error) {
      if (!(error instanceof StoreError) || error.code !== 'store_damaged') throw error;
      // Several calls may find the database damaged at the same time. Only the first of these calls closes
      // the store and renames the folder.
      if (this.#store === store) void this.#leave(async () => this.#onFinding(await quarantine(this.#folder, error)));
      return use(await this.#open());
    }
  }

  #open(): Promise<FindingStore> {
    if (this.#closed) return Promise.reject(new StoreError('store_closed', 'the store of the findings is closed'));
    this.#opening ??= this.#opened().catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  async #opened(): Promise<FindingStore> {
    await this.#leaving;
    const store = await this.#reallyOpen().catch(async (error: unknown) => {
      if (!(error instanceof StoreError) || error.code !== 'store_damaged') throw error;
      this.#onFinding(await quarantine(this.#folder, error));
      return this.#reallyOpen();
    });
    store.outbox.watch(() => {
      for (const listener of this.#listeners) listener();
    });
    this.#store = store;
    return store;
  }

  async #reallyOpen(): Promise<FindingStore> {
    const kv = await openRocksDbStore(this.#folder, { plain: true });
    try {
      return await openFindingStore(kv, this.#options);
    } catch (error) {
      await kv.close();
      throw error;
    }
  }

  #leave(then: () => Promise<void> = async () => {}): Promise<void> {
    const opening = this.#opening;
    this.#opening = undefined;
    this.#store = undefined;
    this.#leaving = this.#leaving.then(async () => {
      const store = await opening?.catch(() => undefined);
      await store?.close().catch(() => undefined);
      await then().catch(() => undefined);
    });
    return this.#leaving;
  }
}

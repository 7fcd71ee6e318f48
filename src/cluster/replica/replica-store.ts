import { BehaviorSubject, type Observable } from 'rxjs';
import { createMutex } from '#store/mutex.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvRange, KvStore } from '#store/store-types.js';

/** The interval in milliseconds at which a failed write to the disk is repeated. */
const RETRY_MS = 5_000;
/** The maximum size in bytes of all values that wait in memory for the disk. */
const MAX_UNKEPT_BYTES = 256 * 1024 * 1024;

/**
 * The local store of a node in a cluster. If a write to the disk fails, for example because the disk is full,
 * the change stays in memory until a later write succeeds. So the node still enforces the newest policy. No
 * change is lost at a restart, because etcd contains each change before this store does.
 */
export class ReplicaStore implements KvStore {
  readonly #kv: KvStore;
  readonly #runExclusive = createMutex();
  readonly #fault = new BehaviorSubject<string | null>(null);
  /** The changes by key that are not on the disk yet: the new value, or null for a removed key. */
  readonly #unkept = new Map<string, Uint8Array | null>();
  #retry: NodeJS.Timeout | undefined;

  constructor(kv: KvStore) {
    this.#kv = kv;
  }

  /** Emits the reason why a change could not be stored on the disk; null if all changes are stored. */
  get fault(): Observable<string | null> {
    return this.#fault;
  }

  /**
   * Stores changes of etcd. If the write to the disk fails, keeps the changes in memory. Throws the
   * `StoreError` of the write if the waiting changes exceed `MAX_UNKEPT_BYTES`.
   */
  keep(operations: readonly KvOperation[]): Promise<void> {
    return this.#runExclusive(async () => {
      try {
        await this.#write(operations);
      } catch (failure) {
        if (!(failure instanceof StoreError) || failure.code === 'store_closed') throw failure;
        if (this.#bytesWith(operations) > MAX_UNKEPT_BYTES) throw failure;
        for (const operation of operations)
          this.#unkept.set(operation.key, operation.type === 'put' ? Uint8Array.from(operation.value) : null);
        this.#fault.next(failure.message);
        this.#retryLater();
      }
    });
  }

  async get(key: string): Promise<Uint8Array | null> {
    const unkept = this.#unkept.get(key);
    return unkept === undefined ? this.#kv.get(key) : unkept;
  }

  async getMany(keys: readonly string[]): Promise<(Uint8Array | null)[]> {
    if (this.#unkept.size === 0) return this.#kv.getMany(keys);
    const stored = keys.filter((key) => !this.#unkept.has(key));
    const values = await this.#kv.getMany(stored);
    const found = new Map(stored.map((key, index) => [key, values[index] ?? null]));
    return keys.map((key) => this.#unkept.get(key) ?? found.get(key) ?? null);
  }

  put(key: string, value: Uint8Array, options: { readonly sync: boolean }): Promise<void> {
    return this.batch([{ type: 'put', key, value }], options);
  }

  delete(key: string, options: { readonly sync: boolean }): Promise<void> {
    return this.batch([{ type: 'delete', key }], options);
  }

  /** Writes operations, and also the changes that wait in memory. Throws if the write to the disk fails. */
  batch(operations: readonly KvOperation[], options: { readonly sync: boolean }): Promise<void> {
    if (this.#unkept.size === 0) return this.#kv.batch(operations, options);
    return this.#runExclusive(() => this.#write(operations));
  }

  iterate(range: KvRange): AsyncIterable<readonly [string, Uint8Array]> {
    return this.#unkept.size === 0 ? this.#kv.iterate(range) : this.#merged(range);
  }

  close(): Promise<void> {
    clearTimeout(this.#retry);
    this.#unkept.clear();
    return this.#kv.close();
  }

  /** Writes the operations that wait in memory and then `operations`, in one batch. */
  async #write(operations: readonly KvOperation[]): Promise<void> {
    const waiting = [...this.#unkept].map(
      ([key, value]): KvOperation => (value === null ? { type: 'delete', key } : { type: 'put', key, value }),
    );
    await this.#kv.batch([...waiting, ...operations], { sync: true });
    this.#unkept.clear();
    if (this.#fault.value !== null) this.#fault.next(null);
  }

  #retryLater(): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.keep([]).catch(() => {}), RETRY_MS).unref();
  }

  #bytesWith(operations: readonly KvOperation[]): number {
    const values = [...this.#unkept.values(), ...operations.map((each) => (each.type === 'put' ? each.value : null))];
    return values.reduce((sum, value) => sum + (value?.length ?? 0), 0);
  }

  /** Iterates over the entries on the disk and in memory, in the order of the keys. */
  async *#merged({
    limit = Number.POSITIVE_INFINITY,
    ...range
  }: KvRange): AsyncGenerator<readonly [string, Uint8Array]> {
    const isBefore = (one: string, other: string): boolean => order(one, other) === (range.reverse === true ? 1 : -1);
    const waiting = [...this.#unkept]
      .filter(([key]) => order(key, range.gte) >= 0 && order(key, range.lt) < 0)
      .sort(([one], [other]) => (isBefore(one, other) ? -1 : 1));
    let left = limit;
    for await (const entry of withEnd(this.#kv.iterate(range))) {
      for (let [first] = waiting; first !== undefined && (entry === null || !isBefore(entry[0], first[0])); ) {
        if (left === 0) return;
        waiting.shift();
        const [key, value] = first;
        if (value !== null) {
          yield [key, value];
          left--;
        }
        [first] = waiting;
      }
      if (entry === null || left === 0) return;
      if (this.#unkept.has(entry[0])) continue;
      yield entry;
      left--;
    }
  }
}

/** Compares the UTF-8 bytes of two keys. */
function order(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

async function* withEnd<T>(items: AsyncIterable<T>): AsyncGenerator<T | null> {
  yield* items;
  yield null;
}

import { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';

/**
 * Called after every write to the store. `outcome` is `written`, the code of a `StoreError`, or `bug` for any
 * other error.
 */
export type WriteListener = (write: { readonly outcome: string; readonly seconds: number }) => void;

/**
 * Returns a store that forwards all calls to `kv`, and reports the duration and outcome of each write to
 * `onWrite`.
 */
export function timedWrites(kv: KvStore, onWrite: WriteListener): KvStore {
  const timed = async (write: () => Promise<void>): Promise<void> => {
    const began = performance.now();
    const tell = (outcome: string) => onWrite({ outcome, seconds: (performance.now() - began) / 1_000 });
    try {
      await write();
    } catch (error) {
      tell(error instanceof StoreError ? error.code : 'bug');
      throw error;
    }
    tell('written');
  };
  return {
    get: (key) => kv.get(key),
    getMany: (keys) => kv.getMany(keys),
    put: (key, value, options) => timed(() => kv.put(key, value, options)),
    delete: (key, options) => timed(() => kv.delete(key, options)),
    batch: (operations, options) => timed(() => kv.batch(operations, options)),
    iterate: (range) => kv.iterate(range),
    close: () => kv.close(),
  };
}

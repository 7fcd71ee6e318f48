import { StoreError } from './store-error.js';
import type { KvRange, KvStore } from './store-types.js';

/**
 * Iterates over the entries of a range in ascending order, without those whose value is damaged; `onDamaged`
 * receives an error for each of these. Throws `store_damaged` if the database itself is damaged.
 */
export async function* intactEntries(
  kv: Pick<KvStore, 'iterate'>,
  range: KvRange,
  onDamaged: (error: StoreError, key: string) => void,
): AsyncGenerator<readonly [key: string, value: Uint8Array]> {
  for (let { gte } = range; ; ) {
    try {
      yield* kv.iterate({ ...range, gte });
      return;
    } catch (error) {
      if (!(error instanceof StoreError && error.code === 'store_damaged' && error.key !== undefined)) throw error;
      onDamaged(error, error.key);
      gte = `${error.key}\0`;
    }
  }
}

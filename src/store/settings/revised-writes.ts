import { firstValueFrom, race, timer } from 'rxjs';
import { createMutex } from '#store/mutex.js';
import { changesOf } from '#store/shared-changes.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore, SharedStore } from '#store/store-types.js';

type Writes = Pick<KvStore, 'put' | 'delete'>;

/**
 * Runs `write`, which reads the value under `key` and then puts or deletes it once. Calls run one after the
 * other. If another node changes the key between the read and the write, the write throws
 * `revision_conflict`. `expected` is the revision that the client expects. If `expected` is undefined,
 * `write` runs once more after a conflict, with the value of the other node.
 */
type RevisedWrite = <T>(key: string, expected: number | undefined, write: (kv: Writes) => Promise<T>) => Promise<T>;

/**
 * The time in milliseconds to wait for the conflicting change of another node. A connected replica receives
 * such a change within milliseconds.
 */
const CHANGE_WAIT_MS = 1_000;

/** `shared` is the store `kv` if the nodes of a cluster share it, and null on a single node. */
export function createRevisedWrites(kv: KvStore, shared: Pick<SharedStore, 'applied'> | null): RevisedWrite {
  const runExclusive = createMutex();
  if (shared === null) return (_key, _expected, write) => runExclusive(() => write(kv));

  return (key, expected, write) =>
    runExclusive(async () => {
      const changes = changesOf(shared, (changed) => changed === key);
      let count = 0;
      const counting = changes.subscribe(() => {
        count += 1;
      });
      try {
        const before = count;
        try {
          return await write(unless(kv, key, () => count !== before));
        } catch (error) {
          if (!isConflict(error) || expected !== undefined) throw error;
        }
        if (count === before) await firstValueFrom(race(changes, timer(CHANGE_WAIT_MS)));
        const now = count;
        return await write(unless(kv, key, () => count !== now));
      } finally {
        counting.unsubscribe();
      }
    });
}

/**
 * Returns writes that throw `revision_conflict` if `isChanged` returns true. The shared store compares a
 * written key only with the replica (local copy of the keys in etcd) at the time of the write. So it would
 * overwrite a change that arrived after the caller had read the value.
 */
function unless(kv: KvStore, key: string, isChanged: () => boolean): Writes {
  const check = (): void => {
    if (isChanged()) throw new StoreError('revision_conflict', `write ${key}: another node has changed the value`);
  };
  return {
    put: async (...put) => {
      check();
      await kv.put(...put);
    },
    delete: async (...removal) => {
      check();
      await kv.delete(...removal);
    },
  };
}

const isConflict = (error: unknown): boolean => error instanceof StoreError && error.code === 'revision_conflict';

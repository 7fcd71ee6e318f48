import type { KvRange, KvStore } from './store-types.js';

const PREFIX = 'local/';

/**
 * Returns the part of `kv` that belongs to this node alone: the entries whose keys begin with `local/`. In a
 * cluster, all other keys belong to the replica of the shared store, which deletes each key that etcd lacks.
 * `close` does nothing, because `kv` stays open.
 */
export function localPart(kv: KvStore): KvStore {
  return {
    get: (key) => kv.get(PREFIX + key),
    getMany: (keys) => kv.getMany(keys.map((key) => PREFIX + key)),
    put: (key, value, options) => kv.put(PREFIX + key, value, options),
    delete: (key, options) => kv.delete(PREFIX + key, options),
    batch: (operations, options) =>
      kv.batch(
        operations.map((operation) => ({ ...operation, key: PREFIX + operation.key })),
        options,
      ),
    async *iterate(range: KvRange) {
      const inside = { ...range, gte: PREFIX + range.gte, lt: PREFIX + range.lt };
      for await (const [key, value] of kv.iterate(inside)) yield [key.slice(PREFIX.length), value] as const;
    },
    close: async () => {},
  };
}

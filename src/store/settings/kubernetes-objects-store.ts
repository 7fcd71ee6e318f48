import type { StoredObject } from '#contracts/kubernetes/kubernetes-source.js';
import { under } from '#store/records/json-value.js';
import type { KvOperation, KvStore } from '#store/store-types.js';

/** The objects of Kubernetes integrations. A later process uses them until the API server sends its lists. */
export type KubernetesObjectsStore = {
  read(): Promise<readonly StoredObject[]>;
  /**
   * Writes the objects without a flush to the disk. After a power failure the maps of the kernel are empty
   * too, so the objects are not needed.
   */
  write(objects: readonly StoredObject[]): Promise<void>;
};

const PREFIX = 'kubernetes/';

/** Stores the objects on this node only, even in a cluster. */
export function createKubernetesObjectsStore(kv: KvStore): KubernetesObjectsStore {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  return {
    async read() {
      const objects: StoredObject[] = [];
      for await (const [key, value] of kv.iterate(under(PREFIX)))
        objects.push({ key: key.slice(PREFIX.length), value: decoder.decode(value) });
      return objects;
    },
    async write(objects) {
      const operations = objects.map(({ key, value }): KvOperation => {
        if (value === null) return { type: 'delete', key: PREFIX + key };
        return { type: 'put', key: PREFIX + key, value: encoder.encode(value) };
      });
      if (operations.length > 0) await kv.batch(operations, { sync: false });
    },
  };
}

import { randomBytes } from 'node:crypto';
import type { LastGoodFile } from '#store/policies/last-good.js';
import { type Seal, sealWith } from '#store/settings/seal.js';
import { assembleStore, type Store } from '#store/store.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvRange, KvStore } from '#store/store-types.js';

/** Opens a store whose content exists only in memory. */
export function openMemoryStore(): Promise<Store> {
  return assembleStore(createMemoryStore(), NO_COPY, memorySeal(), () => {}, null);
}

/** A fake of the last-good file (the copy of the active policy beside the store). It stores nothing. */
export const NO_COPY: LastGoodFile = { read: async () => null, write: async () => {}, append: async () => true };

/** Returns a seal, which encrypts stored secrets. The random key of this seal exists only in memory. */
export function memorySeal(): Seal {
  const key = randomBytes(32);
  return sealWith(async () => key);
}

/** Creates a `KvStore` that keeps its content only in memory. */
export function createMemoryStore(): KvStore {
  const entries = new Map<string, Uint8Array>();
  let open = true;

  const read = (key: string) => {
    const value = entries.get(key);
    return value === undefined ? null : Uint8Array.from(value);
  };
  const apply = (operations: readonly KvOperation[]) => {
    for (const operation of operations) {
      if (operation.type === 'put') entries.set(operation.key, Uint8Array.from(operation.value));
      else entries.delete(operation.key);
    }
  };
  const requireOpen = () => {
    if (!open) throw new StoreError('store_closed', 'the store is closed');
  };

  return {
    async get(key) {
      requireOpen();
      return read(key);
    },
    async getMany(keys) {
      requireOpen();
      return keys.map(read);
    },
    async put(key, value) {
      requireOpen();
      apply([{ type: 'put', key, value }]);
    },
    async delete(key) {
      requireOpen();
      apply([{ type: 'delete', key }]);
    },
    async batch(operations) {
      requireOpen();
      apply(operations);
    },
    async *iterate(range: KvRange) {
      requireOpen();
      for (const key of keysIn(entries, range)) {
        requireOpen();
        const value = read(key);
        if (value !== null) yield [key, value] as const;
      }
    },
    async close() {
      open = false;
    },
  };
}

function keysIn(entries: ReadonlyMap<string, unknown>, { gte, lt, reverse, limit }: KvRange): string[] {
  const low = Buffer.from(gte);
  const high = Buffer.from(lt);
  const keys = [...entries.keys()]
    .map((key) => ({ key, bytes: Buffer.from(key) }))
    .filter(({ bytes }) => bytes.compare(low) >= 0 && bytes.compare(high) < 0)
    .sort((a, b) => a.bytes.compare(b.bytes))
    .map(({ key }) => key);
  if (reverse === true) keys.reverse();
  return limit === undefined ? keys : keys.slice(0, limit);
}

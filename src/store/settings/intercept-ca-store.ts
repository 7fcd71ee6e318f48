import { createPrivateKey } from 'node:crypto';
import { NEVER } from 'rxjs';
import { createMutex } from '#store/mutex.js';
import { intactRecord } from '#store/records/intact-values.js';
import { encodeJson } from '#store/records/json-value.js';
import { RECORDS, type StoredCa } from '#store/records/records.js';
import { changesOf } from '#store/shared-changes.js';
import { StoreError } from '#store/store-error.js';
import type { InterceptCaRecord, InterceptCaStore, KvStore, SharedStore } from '#store/store-types.js';
import type { Seal } from './seal.js';

/**
 * The store key of the intercept CA. After a removal, the entry under this key contains only the revision of
 * the removed CA, so that a later CA gets a higher revision.
 */
const KEY = RECORDS.interceptCa.prefix;

type InterceptCaStoreOptions = {
  /** The store `kv` if the nodes of a cluster share it; null if the CA is stored on this node alone. */
  readonly shared?: Pick<SharedStore, 'applied'> | null;
  readonly now?: () => Date;
};

export function createInterceptCaStore(
  kv: KvStore,
  seal: Seal,
  { shared = null, now = () => new Date() }: InterceptCaStoreOptions = {},
): InterceptCaStore {
  const runExclusive = createMutex();
  const read = async (): Promise<StoredCa> => {
    const bytes = await kv.get(KEY);
    return bytes === null ? { revision: 0 } : RECORDS.interceptCa.read(KEY, bytes);
  };
  /** Reads the stored CA before a write. A damaged record counts as absent, because the write replaces it. */
  const readToWrite = async (): Promise<StoredCa> =>
    (await intactRecord(kv, RECORDS.interceptCa, KEY)) ?? { revision: 0 };
  const recordOf = (stored: StoredCa): InterceptCaRecord | null => ('sealed_key' in stored ? stored : null);
  const requireRevision = (record: InterceptCaRecord | null, expected: number | undefined): void => {
    const revision = record?.revision ?? 0;
    if (expected === undefined || expected === revision) return;
    throw new StoreError(
      'revision_conflict',
      `write the intercept CA: its revision is ${revision}, and ${expected} was expected`,
    );
  };

  return {
    changed: shared === null ? NEVER : changesOf(shared, (key) => key === KEY),
    get: async () => recordOf(await read()),
    key: async ({ sealed_key, fingerprint }) => {
      const der = await seal.open(sealed_key, aboutOf(fingerprint));
      try {
        return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
      } finally {
        der.fill(0);
      }
    },
    put: ({ certPem, chainPem, fingerprint, key }, author, expected) =>
      runExclusive(async () => {
        const stored = await readToWrite();
        requireRevision(recordOf(stored), expected);
        const der = key.export({ type: 'pkcs8', format: 'der' });
        const sealedKey = await seal.seal(der, aboutOf(fingerprint)).finally(() => der.fill(0));
        const record: InterceptCaRecord = {
          cert_pem: certPem,
          chain_pem: chainPem,
          fingerprint,
          sealed_key: sealedKey,
          revision: stored.revision + 1,
          updated_at: now().toISOString(),
          updated_by: author,
        };
        await kv.put(KEY, encodeJson(record), { sync: true });
        return record;
      }),
    remove: (expected) =>
      runExclusive(async () => {
        const record = recordOf(await readToWrite());
        requireRevision(record, expected);
        if (record === null) return false;
        await kv.put(KEY, encodeJson({ revision: record.revision }), { sync: true });
        return true;
      }),
  };
}

const aboutOf = (fingerprint: string): string => `intercept CA ${fingerprint}`;

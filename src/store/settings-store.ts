import { map, NEVER } from 'rxjs';
import { intactValue } from './intact-values.js';
import { decodeJson, encodeJson } from './json-value.js';
import { createRevisedWrites } from './revised-writes.js';
import { changesOf } from './shared-changes.js';
import type { FindingListener } from './store-finding.js';
import type { KvStore, SettingsStore, SharedStore } from './store-types.js';

const keyOf = (setting: string) => `setting/${setting}`;

/**
 * `shared` is the store `kv` if the nodes of a cluster share it, and null on a single node. A setting whose
 * value is damaged is reported to `onFinding`, and counts as absent.
 */
export function createSettingsStore(
  kv: KvStore,
  shared: Pick<SharedStore, 'applied'> | null = null,
  onFinding: FindingListener = () => {},
): SettingsStore {
  const revised = createRevisedWrites(kv, shared);
  const get = async (key: string): Promise<unknown> => {
    const bytes = await intactValue(kv, keyOf(key), ({ message }) => onFinding({ code: 'record_damaged', message }));
    return bytes === null ? null : decodeJson<unknown>(bytes);
  };
  return {
    source: shared === null ? 'local' : 'cluster',
    get,
    put: (key, value) => kv.put(keyOf(key), encodeJson(value), { sync: true }),
    update: (key, expected, next) =>
      revised(keyOf(key), expected, async (once) => {
        const value = next(await get(key));
        await once.put(keyOf(key), encodeJson(value), { sync: true });
        return value;
      }),
    changed: (key) =>
      shared === null
        ? NEVER
        : changesOf(shared, (changed) => changed === keyOf(key)).pipe(
            map((operation) => (operation.type === 'put' ? decodeJson<unknown>(operation.value) : null)),
          ),
  };
}

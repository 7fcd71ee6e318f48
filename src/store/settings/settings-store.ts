import { map, NEVER } from 'rxjs';
import { intactRecord } from '#store/records/intact-values.js';
import { encodeJson } from '#store/records/json-value.js';
import type { RecordKind } from '#store/records/record-kind.js';
import { changesOf } from '#store/shared-changes.js';
import type { FindingListener } from '#store/store-finding.js';
import type { KvStore, SettingsStore, SharedStore } from '#store/store-types.js';
import { createRevisedWrites } from './revised-writes.js';

/**
 * `shared` is the store `kv` if the nodes of a cluster share it, and null on a single node. A setting whose
 * value is damaged or does not match its schema counts as absent, and `onFinding` receives a finding.
 */
export function createSettingsStore(
  kv: KvStore,
  shared: Pick<SharedStore, 'applied'> | null = null,
  onFinding: FindingListener = () => {},
): SettingsStore {
  const revised = createRevisedWrites(kv, shared);
  const get = <T>(setting: RecordKind<T>): Promise<T | null> =>
    intactRecord(kv, setting, setting.prefix, ({ message }) => onFinding({ code: 'record_damaged', message }));
  return {
    source: shared === null ? 'local' : 'cluster',
    get,
    put: (setting, value) => kv.put(setting.prefix, encodeJson(value), { sync: true }),
    update: (setting, expected, next) =>
      revised(setting.prefix, expected, async (once) => {
        const value = next(await get(setting));
        await once.put(setting.prefix, encodeJson(value), { sync: true });
        return value;
      }),
    changed: <T>(setting: RecordKind<T>) =>
      shared === null
        ? NEVER
        : changesOf(shared, (changed) => changed === setting.prefix).pipe(
            map((operation): T | null =>
              operation.type === 'put' ? (setting.reading(operation.key, operation.value).value ?? null) : null,
            ),
          ),
  };
}

import { decodeJson, encodeJson } from './json-value.js';
import type { KvStore, SettingsStore } from './store-types.js';

export function createSettingsStore(kv: KvStore): SettingsStore {
  return {
    async get(key) {
      const bytes = await kv.get(`setting/${key}`);
      return bytes === null ? null : decodeJson<unknown>(bytes);
    },
    put: (key, value) => kv.put(`setting/${key}`, encodeJson(value), { sync: true }),
  };
}

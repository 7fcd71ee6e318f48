import { decodeJson, encodeJson, under } from './json-value.js';
import type { KvStore, TokenRecord, TokenStore } from './store-types.js';

export function createTokenStore(kv: KvStore): TokenStore {
  return {
    async list() {
      const records: TokenRecord[] = [];
      for await (const [, bytes] of kv.iterate(under('token/'))) records.push(decodeJson(bytes));
      return records.sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at));
    },
    async get(id) {
      const bytes = await kv.get(`token/${id}`);
      return bytes === null ? null : decodeJson<TokenRecord>(bytes);
    },
    put: (record) => kv.put(`token/${record.id}`, encodeJson(record), { sync: true }),
  };
}

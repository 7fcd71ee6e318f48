import { intactEntries } from './intact-values.js';
import { decodeJson, encodeJson, under } from './json-value.js';
import type { FindingListener } from './store-finding.js';
import type { KvStore, TokenRecord, TokenStore } from './store-types.js';

export function createTokenStore(kv: KvStore, onFinding: FindingListener = () => {}): TokenStore {
  return {
    async list() {
      const records: TokenRecord[] = [];
      const entries = intactEntries(kv, under('token/'), ({ message }) =>
        onFinding({ code: 'record_damaged', message: `${message}; the token is refused` }),
      );
      for await (const [, bytes] of entries) records.push(decodeJson(bytes));
      return records.sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at));
    },
    async get(id) {
      const bytes = await kv.get(`token/${id}`);
      return bytes === null ? null : decodeJson<TokenRecord>(bytes);
    },
    put: (record) => kv.put(`token/${record.id}`, encodeJson(record), { sync: true }),
  };
}

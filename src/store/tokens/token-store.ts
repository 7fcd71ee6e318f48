import { intactRecords } from '#store/records/intact-values.js';
import { encodeJson } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import type { FindingListener } from '#store/store-finding.js';
import type { KvStore, TokenRecord, TokenStore } from '#store/store-types.js';

export function createTokenStore(kv: KvStore, onFinding: FindingListener = () => {}): TokenStore {
  return {
    async list() {
      const records: TokenRecord[] = [];
      const entries = intactRecords(kv, RECORDS.token, ({ message }) =>
        onFinding({ code: 'record_damaged', message: `${message}; the token is refused` }),
      );
      for await (const [, record] of entries) records.push(record);
      return records.sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at));
    },
    async get(id) {
      const key = `token/${id}`;
      const bytes = await kv.get(key);
      return bytes === null ? null : RECORDS.token.read(key, bytes);
    },
    put: (record) => kv.put(`token/${record.id}`, encodeJson(record), { sync: true }),
  };
}

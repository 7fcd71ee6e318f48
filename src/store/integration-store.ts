import { decodeJson, encodeJson, under } from './json-value.js';
import { StoreError } from './store-error.js';
import type { IntegrationRecord, IntegrationStore, KvStore } from './store-types.js';
import { createTurns } from './write-queue.js';

export function createIntegrationStore(kv: KvStore, now: () => Date = () => new Date()): IntegrationStore {
  const inTurn = createTurns();

  const get = async (name: string): Promise<IntegrationRecord | null> => {
    const bytes = await kv.get(`integration/${name}`);
    return bytes === null ? null : decodeJson<IntegrationRecord>(bytes);
  };
  const requireRevision = (name: string, stored: IntegrationRecord | null, expected: number | undefined) => {
    const revision = stored?.revision ?? 0;
    if (expected === undefined || expected === revision) return;
    throw new StoreError(
      'revision_conflict',
      `write integration ${name}: its revision is ${revision}, and ${expected} was expected`,
    );
  };

  return {
    async list() {
      const records: IntegrationRecord[] = [];
      for await (const [, bytes] of kv.iterate(under('integration/'))) records.push(decodeJson(bytes));
      return records;
    },
    get,
    put: (integration, author, expected) =>
      inTurn(async () => {
        const stored = await get(integration.name);
        requireRevision(integration.name, stored, expected);
        const at = now().toISOString();
        const record: IntegrationRecord = {
          name: integration.name,
          kind: integration.kind,
          api_server_url: integration.api_server_url,
          ca_cert_pem: integration.ca_cert_pem,
          service_account_token: integration.service_account_token,
          revision: (stored?.revision ?? 0) + 1,
          created_at: stored?.created_at ?? at,
          updated_at: at,
          updated_by: author,
        };
        await kv.put(`integration/${record.name}`, encodeJson(record), { sync: true });
        return record;
      }),
    remove: (name, expected) =>
      inTurn(async () => {
        const stored = await get(name);
        requireRevision(name, stored, expected);
        if (stored === null) return false;
        await kv.delete(`integration/${name}`, { sync: true });
        return true;
      }),
  };
}

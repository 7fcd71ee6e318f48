import { map, merge, Subject } from 'rxjs';
import { intactRecord, intactRecords } from '#store/records/intact-values.js';
import { encodeJson } from '#store/records/json-value.js';
import { RECORDS, type SealedIntegration } from '#store/records/records.js';
import { changesOf } from '#store/shared-changes.js';
import { StoreError } from '#store/store-error.js';
import type { FindingListener } from '#store/store-finding.js';
import type { IntegrationRecord, IntegrationStore, KvStore, SharedStore } from '#store/store-types.js';
import { createRevisedWrites } from './revised-writes.js';
import type { Seal } from './seal.js';

/**
 * How the tokens of integrations are stored: as they are on a single node, or sealed in a cluster. `refused`:
 * the nodes of the cluster have no common sealing key, so that a token cannot be stored.
 */
type Secrets = 'plain' | Seal | 'refused';

const aboutOf = ({ name }: { readonly name: string }): string => `integration ${name}`;

/** Encrypts (seals) the token of an integration for the store of a cluster. */
export async function sealedIntegration(record: IntegrationRecord, seal: Seal): Promise<SealedIntegration> {
  const { service_account_token: token, ...others } = record;
  return { ...others, sealed_token: await seal.seal(Buffer.from(token), aboutOf(record)) };
}

type Options = {
  readonly secrets?: Secrets;
  /** The store `kv` if the nodes of a cluster share it; null on a single node. */
  readonly shared?: SharedStore | null;
  readonly now?: () => Date;
  readonly onFinding?: FindingListener;
};

/** An integration whose record is damaged is reported once to `onFinding`, and counts as absent. */
export function createIntegrationStore(kv: KvStore, options: Options = {}): IntegrationStore {
  const { secrets = 'plain', shared = null, now = () => new Date(), onFinding = () => {} } = options;
  const reported = new Set<string>();
  const report = ({ message }: StoreError, key: string): void => {
    if (!reported.has(key)) onFinding({ code: 'record_damaged', message });
    reported.add(key);
  };
  const revised = createRevisedWrites(kv, shared);
  const written = new Subject<void>();
  let unreadable: ReadonlySet<string> = new Set();
  const followed = shared === null ? [] : [changesOf(shared, (key) => key.startsWith('integration/'))];

  const get = async (name: string): Promise<IntegrationRecord | null> => {
    const record = await intactRecord(kv, RECORDS.integration, `integration/${name}`, report);
    return record && opened(record);
  };
  const stored = async (record: IntegrationRecord): Promise<IntegrationRecord | SealedIntegration> => {
    if (secrets === 'plain') return record;
    if (secrets === 'refused')
      throw new StoreError(
        'seal_key_missing',
        `write integration ${record.name}: a cluster stores tokens only sealed, and cluster.seal_key_file is not configured`,
      );
    return sealedIntegration(record, secrets);
  };
  /**
   * If the token cannot be decrypted, the record has an empty token: the integration (a Kubernetes API
   * server) then cannot connect.
   */
  const opened = async (record: IntegrationRecord | SealedIntegration): Promise<IntegrationRecord> => {
    if (!('sealed_token' in record)) return record;
    const { sealed_token: sealed, ...others } = record;
    if (secrets === 'plain' || secrets === 'refused') return { ...others, service_account_token: '' };
    try {
      const token = await secrets.open(sealed, aboutOf(record));
      return { ...others, service_account_token: token.toString() };
    } catch (failure) {
      if (!(failure instanceof StoreError)) throw failure;
      return { ...others, service_account_token: '' };
    }
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
      const found = new Set<string>();
      const damaged = (failure: StoreError, key: string): void => {
        found.add(key.slice(RECORDS.integration.prefix.length));
        report(failure, key);
      };
      for await (const [, record] of intactRecords(kv, RECORDS.integration, damaged))
        records.push(await opened(record));
      unreadable = found;
      return records;
    },
    get unreadable() {
      return unreadable;
    },
    get,
    put: (integration, author, expected) =>
      revised(`integration/${integration.name}`, expected, async (writes) => {
        const before = await get(integration.name);
        requireRevision(integration.name, before, expected);
        const at = now().toISOString();
        const record: IntegrationRecord = {
          name: integration.name,
          kind: integration.kind,
          api_server_url: integration.api_server_url,
          ca_cert_pem: integration.ca_cert_pem,
          service_account_token: integration.service_account_token,
          revision: (before?.revision ?? 0) + 1,
          created_at: before?.created_at ?? at,
          updated_at: at,
          updated_by: author,
        };
        await writes.put(`integration/${record.name}`, encodeJson(await stored(record)), { sync: true });
        written.next();
        return record;
      }),
    remove: (name, expected) =>
      revised(`integration/${name}`, expected, async (writes) => {
        const stored = await get(name);
        requireRevision(name, stored, expected);
        if (stored === null) return false;
        await writes.delete(`integration/${name}`, { sync: true });
        written.next();
        return true;
      }),
    changed: merge(written, ...followed).pipe(map(() => {})),
  };
}

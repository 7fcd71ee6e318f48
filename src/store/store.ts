import { join } from 'node:path';
import { makeDataFolder, quarantine } from '#store/disk/data-folder.js';
import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
import { DEFAULT_BOUNDS, type HistoryBounds } from '#store/policies/history-bounds.js';
import type { HistorySweep } from '#store/policies/history-sweep.js';
import { type LastGoodFile, lastGoodFile } from '#store/policies/last-good.js';
import { HEAD } from '#store/policies/policy-plan.js';
import { loadPolicyStore, type SharedCommits } from '#store/policies/policy-store.js';
import { intactEntries } from '#store/records/intact-values.js';
import { under } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { createAssertionStore } from '#store/settings/assertion-store.js';
import { createIntegrationStore } from '#store/settings/integration-store.js';
import { createInterceptCaStore } from '#store/settings/intercept-ca-store.js';
import { createKubernetesObjectsStore, type KubernetesObjectsStore } from '#store/settings/kubernetes-objects-store.js';
import { fileSeal, type Seal } from '#store/settings/seal.js';
import { createSettingsStore } from '#store/settings/settings-store.js';
import { SharedTokens } from '#store/tokens/shared-tokens.js';
import { createTokenStore } from '#store/tokens/token-store.js';
import { StoreError } from './store-error.js';
import type { FindingListener } from './store-finding.js';
import type {
  AssertionStore,
  IntegrationStore,
  InterceptCaStore,
  KvStore,
  PolicyStore,
  SettingsStore,
  SharedStore,
  TokenStore,
} from './store-types.js';

/** All persistent data of a node. */
export type Store = {
  readonly policies: PolicyStore;
  readonly settings: SettingsStore;
  readonly integrations: IntegrationStore;
  readonly assertions: AssertionStore;
  readonly kubernetesObjects: KubernetesObjectsStore;
  readonly interceptCa: InterceptCaStore;
  readonly tokens: TokenStore;
  /** The tokens of all nodes of the cluster; null on a single node. */
  readonly sharedTokens: SharedTokens | null;
  close(): Promise<void>;
};

/**
 * The store that the nodes of a cluster share. `kv`: the local store of this node with the replica. `seals`:
 * whether all nodes have the same sealing key, so that secrets can be shared.
 */
export type Shared = {
  readonly store: SharedStore;
  readonly commits: SharedCommits;
  readonly kv: KvStore;
  readonly seals: boolean;
};

/**
 * Opens the store in the node's data folder: `store/` (RocksDB) and `last-good.policy`.
 * - If the store is too damaged to open or to read, its folder is renamed. A new store is created from the
 *   last-good copy.
 * - On a full disk the store is opened read-only.
 * - `onFinding` receives findings, for example about a damaged store or a full disk. `onWrite` is called
 *   after every write.
 * - The private key of the intercept CA is sealed with the key in `sealKeyFile`, by default `seal.key` in the
 *   data folder.
 * - `history`: the bounds of the history of policies on a single node.
 * - `share` receives the local store and returns the shared store of the cluster, which keeps its replica in
 *   the local store. It is null on a single node.
 * - Throws `data_dir_exposed`, `store_locked`, `store_no_space`, `store_library_missing`, `store_unavailable`
 *   or `store_damaged`.
 */
export async function openStore(
  dataDir: string,
  onFinding: FindingListener,
  onWrite: WriteListener = () => {},
  sealKeyFile: string | null = null,
  share: (kv: KvStore) => Shared | null = () => null,
  history: HistoryBounds = DEFAULT_BOUNDS,
): Promise<Store> {
  const folder = join(dataDir, 'store');
  await makeDataFolder(dataDir, onFinding);
  const lastGood = lastGoodFile(join(dataDir, 'last-good.policy'));
  const kv = await openReadable(folder, lastGood, onFinding);
  let shared: Shared | null = null;
  try {
    const seal = fileSeal(sealKeyFile ?? join(dataDir, 'seal.key'), sealKeyFile !== null);
    const timed = timedWrites(kv, onWrite);
    shared = share(timed);
    const store = await assembleStore(shared?.kv ?? timed, lastGood, seal, onFinding, shared, history);
    if (shared === null) store.historySweep.start();
    return store;
  } catch (error) {
    await shared?.store.close();
    await kv.close();
    throw error;
  }
}

/**
 * Builds the parts of a node's store on the key-value store `kv`. With `shared`, `kv` contains the replica of
 * the shared store. `close` of the result closes the shared store and `kv`. The sweep (removal of old
 * revisions) of the history is not started.
 */
export async function assembleStore(
  kv: KvStore,
  lastGood: LastGoodFile,
  seal: Seal,
  onFinding: FindingListener,
  shared: Shared | null,
  history: HistoryBounds = DEFAULT_BOUNDS,
): Promise<Store & { readonly historySweep: HistorySweep }> {
  const policies = await loadPolicyStore(kv, lastGood, onFinding, shared?.commits ?? null, history);
  const store = shared?.store ?? null;
  // Without a common sealing key, store the intercept CA on this node only: the other nodes could not decrypt
  // its key.
  const sharedCa = shared?.seals === true ? shared.store : null;
  const secrets = shared === null ? 'plain' : shared.seals ? seal : 'refused';
  return {
    policies,
    historySweep: policies.sweep,
    settings: createSettingsStore(store ?? kv, store, onFinding),
    integrations: createIntegrationStore(store ?? kv, { secrets, shared: store, onFinding }),
    assertions: createAssertionStore(store ?? kv, { shared: store }),
    kubernetesObjects: createKubernetesObjectsStore(kv),
    interceptCa: createInterceptCaStore(sharedCa ?? kv, seal, { shared: sharedCa }),
    tokens: createTokenStore(kv, onFinding),
    sharedTokens: store === null ? null : await SharedTokens.load(store),
    close: async () => {
      await policies.sweep.stop();
      await store?.close();
      await kv.close();
    },
  };
}

/** The prefixes of the keys that each start reads. */
const READ_AT_START = [
  'cluster-token/',
  'integration/',
  'policy/',
  'removed-node/',
  'setting/',
  'token-key/',
  'token/',
] as const;

/**
 * Opens the store and reads all values that the start needs, because RocksDB detects a damaged block only
 * when it reads the block. Renames the folder of a damaged store and creates a new store. Throws
 * `store_damaged` instead if the head (record of the last commit) of the store is newer than the last-good
 * copy, because an older policy must not replace a newer one.
 */
async function openReadable(folder: string, lastGood: LastGoodFile, onFinding: FindingListener): Promise<KvStore> {
  const kv = await openRocksDbStore(folder).catch((error: unknown) => reopen(folder, error, onFinding));
  try {
    for (const prefix of READ_AT_START) for await (const _ of intactEntries(kv, under(prefix), () => {}));
    return kv;
  } catch (error) {
    const stored = await generationOf(kv).catch(() => 0);
    await kv.close();
    if (!(error instanceof StoreError) || error.code !== 'store_damaged') throw error;
    const copied = (await lastGood.read())?.head.generation ?? 0;
    if (copied < stored) {
      const reason = `the last-good copy is of generation ${copied}, and the store of generation ${stored}`;
      throw new StoreError('store_damaged', `${error.message}; ${reason}`, { cause: error });
    }
    onFinding(await quarantine(folder, error));
    return openRocksDbStore(folder);
  }
}

async function generationOf(kv: KvStore): Promise<number> {
  const head = await kv.get(HEAD);
  return head === null ? 0 : RECORDS.head.read(HEAD, head).generation;
}

async function reopen(folder: string, error: unknown, onFinding: FindingListener): Promise<KvStore> {
  if (!(error instanceof StoreError)) throw error;
  switch (error.code) {
    case 'store_damaged': {
      onFinding(await quarantine(folder, error));
      return openRocksDbStore(folder);
    }
    case 'store_no_space': {
      const kv = await openRocksDbStore(folder, { readOnly: true }).catch(() => Promise.reject(error));
      onFinding({ code: 'store_read_only', message: `${error.message}; the store is open for reading only` });
      return kv;
    }
    default:
      throw error;
  }
}

/**
 * Called after every write to the store. `outcome` is `written`, the code of a `StoreError`, or `bug` for any
 * other error.
 */
type WriteListener = (write: { readonly outcome: string; readonly seconds: number }) => void;

/**
 * Returns a store that forwards all calls to `kv`, and reports the duration and outcome of each write to
 * `onWrite`.
 */
export function timedWrites(kv: KvStore, onWrite: WriteListener): KvStore {
  const timed = async (write: () => Promise<void>): Promise<void> => {
    const began = performance.now();
    const tell = (outcome: string) => onWrite({ outcome, seconds: (performance.now() - began) / 1_000 });
    try {
      await write();
    } catch (error) {
      tell(error instanceof StoreError ? error.code : 'bug');
      throw error;
    }
    tell('written');
  };
  return {
    get: (key) => kv.get(key),
    getMany: (keys) => kv.getMany(keys),
    put: (key, value, options) => timed(() => kv.put(key, value, options)),
    delete: (key, options) => timed(() => kv.delete(key, options)),
    batch: (operations, options) => timed(() => kv.batch(operations, options)),
    iterate: (range) => kv.iterate(range),
    close: () => kv.close(),
  };
}

import { largest } from '#arrays/extremes.js';
import type { KeyValue, Operation } from '#cluster/etcd/etcd-types.js';
import type { ClusterData } from '#cluster/keys.js';
import { storeBodies } from '#cluster/parts.js';
import { CLUSTER_RECORDS } from '#cluster/records.js';
import { storeFailure } from '#cluster/store-failure.js';
import { reservedGeneration } from '#store/policies/pending-change.js';
import type { PolicyHead, PolicyRow } from '#store/policies/policy-row.js';
import { intactEntries, intactRecords } from '#store/records/intact-values.js';
import { encodeJson, under } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { sealedIntegration } from '#store/settings/integration-store.js';
import type { Seal } from '#store/settings/seal.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import { metaValue, type Replica } from './replica.js';

/** The side of a contradiction whose policies stay: this node, or the store in etcd. */
export type Keep = 'node' | 'store';

export type RecoveryPorts = ClusterData & {
  readonly kv: KvStore;
  readonly replica: Replica;
  /** Encrypts the tokens of Kubernetes integrations; null without `cluster.seal_key_file`. */
  readonly seal: Seal | null;
};
type Put = Extract<KvOperation, { type: 'put' }>;

/** The number of records in one transaction. etcd accepts at most 128 operations in a transaction. */
const RECORDS_PER_WRITE = 100;
const WRITE = { withinMs: 10_000 };
const NO_HEAD: PolicyHead = { generation: 0, active: null, ever_activated: false, sequence: 0, commit: '' };

/** Creates a cluster in etcd below the key prefix, with the policies and settings of this node. */
export async function initialize(ports: RecoveryPorts, dryRun: boolean): Promise<void> {
  const { replica } = ports;
  await translated('create the cluster', async () => {
    const { metaEntry } = await shared(ports);
    if (metaEntry !== null) throw new StoreError('revision_conflict', 'etcd has a cluster below this prefix already');
    if (dryRun) return;
    const clusterId = crypto.randomUUID();
    const local = await localContent(ports);
    const head = local.head === null ? null : stamped(local.head, reservedGeneration(local.head), 0);
    await replica.expect(clusterId, 0);
    await publish(ports, { ...local, head, remove: [], clusterId, recoveries: 0, before: null });
  });
}

type Recovery = { readonly keep: Keep; readonly atLeast: number; readonly dryRun: boolean };

/** Resolves a contradiction between the policies of this node and those in etcd, see `Cluster.recover`. */
export async function recover(ports: RecoveryPorts, { keep, atLeast, dryRun }: Recovery): Promise<void> {
  const { replica } = ports;
  await translated('recover the cluster', async () => {
    const found = await shared(ports);
    const local = await localContent(ports);
    const taken = [local.head, found.head].map((head) => reservedGeneration(head ?? NO_HEAD));
    const generation = Math.max(largest(taken), atLeast) + 1;
    const sequence = Math.max(local.head?.sequence ?? 0, found.head?.sequence ?? 0);
    const recoveries = Math.max(replica.recoveries, found.meta?.recoveries ?? 0) + 1;
    if (keep === 'store') {
      const unreadable = found.unreadable[0];
      if (unreadable !== undefined)
        throw new StoreError(
          'revision_conflict',
          `recover the cluster: the key ${unreadable} in etcd cannot be read, so its policies cannot be kept`,
        );
      if (found.meta === null)
        throw new StoreError(
          'revision_conflict',
          'recover the cluster: etcd has no cluster below this prefix whose policies could be kept',
        );
      if (dryRun) return;
      const rows = found.rows.map((row) => above(row, local.rows));
      await publish(ports, {
        rows: rows.filter((row, index) => row !== found.rows[index]),
        head: stamped(found.head ?? NO_HEAD, generation, sequence),
        others: [],
        bodies: [],
        history: [],
        remove: [],
        clusterId: found.meta.line,
        recoveries,
        before: found.metaEntry,
      });
      await replica.adopt();
      return;
    }
    if (found.isNewer)
      throw new StoreError(
        'revision_conflict',
        `the cluster has a format that this build does not know; recover it at a node of the newer build`,
      );
    if (found.meta !== null && replica.clusterId !== null && found.meta.line !== replica.clusterId)
      throw new StoreError('revision_conflict', 'etcd has another cluster below this prefix; use another prefix');
    if (dryRun) return;
    const clusterId = found.meta?.line ?? replica.clusterId ?? crypto.randomUUID();
    const rows = local.rows.map((row) => above(row, found.rows));
    const kept = new Set([...local.rows.map(({ id }) => `policy/${id}`), ...local.others.map(({ key }) => key)]);
    await replica.expect(clusterId, recoveries);
    await publish(ports, {
      ...local,
      rows,
      head: stamped(local.head ?? NO_HEAD, generation, sequence),
      remove: found.removable.filter((key) => !kept.has(key)),
      clusterId,
      recoveries,
      before: found.metaEntry,
    });
  });
}

type Content = {
  readonly head: PolicyHead | null;
  readonly rows: readonly PolicyRow[];
  /** The records of settings, integrations and removed nodes. */
  readonly others: readonly Put[];
  readonly bodies: readonly Put[];
  readonly history: readonly Put[];
};
type Publication = Content & {
  /** The local keys whose records are removed from etcd. */
  readonly remove: readonly string[];
  readonly clusterId: string;
  readonly recoveries: number;
  /** The key `meta` before the write; null if it does not exist. */
  readonly before: KeyValue | null;
};

/** Writes policies and settings to etcd. The last transaction writes the keys `head` and `meta`. */
async function publish({ client, keys }: RecoveryPorts, publication: Publication): Promise<void> {
  const { head, rows, others, bodies, history, remove, clusterId, recoveries, before } = publication;
  const when = [{ key: keys.meta, modRevision: before?.modRevision ?? 0n }];
  const write = async (apply: readonly Operation[]): Promise<void> => {
    const { succeeded } = await client.transact({ when, apply }, WRITE);
    if (!succeeded) throw new StoreError('revision_conflict', 'another node changes the cluster at the same time');
  };
  await storeBodies(client, keys, [...bodies, ...history]);
  const records = rows.flatMap((row): Put[] => [
    { type: 'put', key: `policy/${row.id}`, value: encodeJson(row) },
    { type: 'put', key: historyKey(row), value: encodeJson(row) },
  ]);
  const operations = [
    ...remove.map((key): Operation => ({ type: 'delete', key: keys.inEtcd(key) })),
    ...[...others, ...records].map(({ key, value }): Operation => ({ type: 'put', key: keys.inEtcd(key), value })),
  ];
  for (; operations.length > RECORDS_PER_WRITE; ) await write(operations.splice(0, RECORDS_PER_WRITE));
  const committed: Operation[] =
    head === null
      ? []
      : [
          { type: 'put', key: keys.inEtcd('head'), value: encodeJson(head) },
          { type: 'put', key: keys.commit(head.sequence ?? 0), value: Buffer.from(head.commit ?? '') },
        ];
  await write([
    ...operations,
    ...committed,
    { type: 'put', key: keys.meta, value: metaValue({ line: clusterId, recoveries, format: 1 }) },
  ]);
}

/**
 * Returns the head (generation, active policy, last commit) with the id of a new commit. Omits its pending
 * change, because the new commit completes the change.
 */
function stamped({ pending: _, ...head }: PolicyHead, generation: number, sequence: number): PolicyHead {
  return { ...head, generation, sequence: Math.max(sequence, head.sequence ?? 0) + 1, commit: crypto.randomUUID() };
}

/**
 * Returns the policy record `row` with a higher revision than the record in `others` with the same id.
 * Returns `row` unchanged if `others` has no such record, or an equal one.
 */
function above(row: PolicyRow, others: readonly PolicyRow[]): PolicyRow {
  const other = others.find(({ id }) => id === row.id);
  if (other === undefined || JSON.stringify(other) === JSON.stringify(row) || other.revision < row.revision) return row;
  return { ...row, revision: other.revision + 1 };
}

async function shared({ client, keys }: RecoveryPorts) {
  const { entries } = await client.range(keys.shared, WRITE);
  const metaEntry = entries.find(({ key }) => key === keys.meta) ?? null;
  const byLocal = entries.map((entry) => [keys.local(entry.key), entry] as const);
  const head = byLocal.find(([local]) => local === 'head')?.[1];
  const readMeta = metaEntry && CLUSTER_RECORDS.meta.reading(CLUSTER_RECORDS.meta.prefix, metaEntry.value);
  const readHead = head && RECORDS.head.reading(RECORDS.head.prefix, head.value);
  return {
    metaEntry,
    meta: readMeta?.value ?? null,
    /** Whether the format of the cluster is newer than this build. */
    isNewer: metaEntry !== null && formatIn(metaEntry.value) > 1,
    head: readHead?.value ?? null,
    /** The keys `meta` and `head` in etcd, if they cannot be read. */
    unreadable: [
      ...(readMeta?.reason === undefined ? [] : [keys.meta]),
      ...(readHead?.reason === undefined ? [] : [keys.inEtcd('head')]),
    ],
    rows: byLocal.flatMap(([local, { value }]) => {
      const row = local?.startsWith('policy/') === true ? RECORDS.policy.reading(local, value).value : undefined;
      return row === undefined ? [] : [row];
    }),
    /**
     * Local keys that a recovery may remove from etcd: all keys except the head (record of the last commit),
     * tokens and nodes.
     */
    removable: byLocal.flatMap(([local]) =>
      local === null || local === 'head' || /^(cluster-token|token-key|cluster-node|removed-node)[/]/.test(local)
        ? []
        : [local],
    ),
  };
}

/** Returns the entry of an integration with a sealed token, as a cluster stores it. */
async function sealedEntry(entry: Put, seal: Seal | null): Promise<Put> {
  const record = RECORDS.integration.read(entry.key, entry.value);
  if (!('service_account_token' in record)) return entry;
  if (seal === null)
    throw new StoreError(
      'seal_key_missing',
      `share the integration ${record.name}: its token can be stored in etcd only with cluster.seal_key_file`,
    );
  return { ...entry, value: encodeJson(await sealedIntegration(record, seal)) };
}

async function localContent({ kv, keys, seal }: RecoveryPorts): Promise<Content> {
  /** Returns the valid records (those that match their schema) whose keys have a prefix. */
  const all = async (prefix: `${string}/`): Promise<Put[]> => {
    const found: Put[] = [];
    for await (const [key, value] of intactEntries(kv, under(prefix), () => {})) {
      const kind = prefix === RECORDS.history.prefix ? RECORDS.history : keys.kindOf(key);
      if (kind === null || kind.reading(key, value).reason === undefined) found.push({ type: 'put', key, value });
    }
    return found;
  };
  const rows: PolicyRow[] = [];
  for await (const [, row] of intactRecords(kv, RECORDS.policy, () => {})) rows.push(row);
  const head = await kv.get('head');
  const integrations = await Promise.all((await all('integration/')).map((entry) => sealedEntry(entry, seal)));
  const others = [...(await all('setting/')), ...integrations, ...(await all('removed-node/'))];
  return {
    head: head === null ? null : RECORDS.head.read(RECORDS.head.prefix, head),
    rows,
    others: others.filter(({ key }) => keys.isReplicated(key)),
    bodies: [...(await all('part/')), ...(await all('parts/'))],
    history: await all('history/'),
  };
}

/** Returns the format that the value of `meta` contains; 0 if it contains none. */
function formatIn(value: Uint8Array): number {
  return CLUSTER_RECORDS.metaFormat.reading(CLUSTER_RECORDS.metaFormat.prefix, value).value?.format ?? 0;
}

const historyKey = ({ id, revision }: PolicyRow): string => `history/${id}/${String(revision).padStart(12, '0')}`;

async function translated(operation: string, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (failure) {
    throw storeFailure(operation, failure);
  }
}

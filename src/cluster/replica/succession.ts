import { Contradiction } from '#cluster/contradiction.js';
import type { KeyValue, RangeResult } from '#cluster/etcd/etcd-types.js';
import type { ClusterData } from '#cluster/keys.js';
import { CLUSTER_RECORDS, type ClusterMeta } from '#cluster/records.js';
import type { UnreadableValues } from '#cluster/unreadable-values.js';
import type { PolicyHead } from '#store/policies/policy-row.js';
import { RECORDS } from '#store/records/records.js';
import type { KvStore } from '#store/store-types.js';

const HEAD = RECORDS.head.prefix;
/** The format of a commit id. */
const COMMIT_ID = /^[0-9a-f-]{36}$/;
/** The time limit for a read of all shared keys from etcd. */
export const READ = { withinMs: 5_000 };

/** The cluster that a replica is a copy of, and the etcd revision up to which the replica is complete. */
export type Origin = {
  readonly clusterId: string | null;
  readonly recoveries: number;
  readonly revision: bigint;
};

export type SuccessionPorts = ClusterData & {
  /** The local store, which contains the replica. */
  readonly kv: Pick<KvStore, 'get' | 'iterate'>;
  readonly unreadable: UnreadableValues;
};

/**
 * Throws a `Contradiction` unless `found`, all shared keys of etcd, contains the cluster of a replica, in the
 * same state or a later one. Calls `onRecovered` if etcd contains a later recovery of the cluster. The
 * replica must then reset its revision to 0, because etcd may begin its revisions anew.
 */
export async function requireSuccessor(
  found: RangeResult,
  replica: Origin,
  onRecovered: () => void,
  ports: SuccessionPorts,
): Promise<void> {
  const { keys, kv, unreadable } = ports;
  const entry = found.entries.find(({ key }) => key === keys.meta);
  const meta = entry === undefined ? null : metaIn(entry, unreadable);
  const head = await localHead(kv);
  if (meta === null) {
    if (replica.clusterId === null)
      throw new Contradiction('uninitialized', 'etcd has no cluster below this prefix yet');
    throw new Contradiction('wiped', `etcd has lost the cluster ${replica.clusterId}`);
  }
  if (replica.clusterId === null) {
    const hasPolicies = (head?.sequence ?? head?.generation ?? 0) > 0;
    if (!hasPolicies && !(await contains(kv, 'integration/'))) return;
    const own = hasPolicies ? 'policies' : 'integrations';
    throw new Contradiction('own_policies', `this node has its own ${own}, and was never in a cluster`);
  }
  if (meta.line !== replica.clusterId)
    throw new Contradiction(
      'other_cluster',
      `etcd has the cluster ${meta.line}, and this node belongs to ${replica.clusterId}`,
    );
  const isRecovered = meta.recoveries > replica.recoveries;
  if (isRecovered) onRecovered();
  if (meta.recoveries < replica.recoveries)
    throw new Contradiction('older', 'etcd is at a state before the last recovery of the cluster');
  if (found.revision < replica.revision)
    throw new Contradiction(
      'older',
      `etcd is at revision ${found.revision}, and this node has applied revision ${replica.revision}`,
    );
  if (head !== null && head.sequence !== undefined) await requireCommit(found, head, isRecovered, ports);
}

/**
 * Throws a `Contradiction` if etcd lacks the last commit that this node has applied, or has another commit in
 * its place.
 */
async function requireCommit(
  found: RangeResult,
  { sequence = 0, commit, generation }: PolicyHead,
  isRecovered: boolean,
  { client, keys, unreadable }: SuccessionPorts,
): Promise<void> {
  if (sequence === 0) return;
  const entry = found.entries.find(({ key }) => keys.local(key) === HEAD);
  const theirs = entry === undefined ? null : headIn(entry, unreadable);
  if (theirs?.commit === commit) return;
  const theirSequence = theirs?.sequence ?? 0;
  if (theirSequence < sequence || (theirs?.generation ?? 0) < generation)
    throw new Contradiction(
      'older',
      `etcd is at commit ${theirSequence} (generation ${theirs?.generation ?? 0}), ` +
        `and this node has applied commit ${sequence} (generation ${generation})`,
    );
  if (isRecovered) return;
  const key = keys.commit(sequence);
  const { found: stored } = await client.transact({ when: [], apply: [{ type: 'get', key }] }, READ);
  // An invalid commit id is ignored, like an id that the leader has removed.
  const id = Buffer.from(stored[0]?.[0]?.value ?? []).toString();
  if (COMMIT_ID.test(id) && id !== commit)
    throw new Contradiction(
      'forked',
      `commit ${sequence} in etcd differs from the commit ${sequence} that this node has applied`,
    );
}

/** Reads the value of the key `meta` in etcd. Throws a `Contradiction` if it cannot be read. */
export function metaIn(entry: KeyValue, unreadable: UnreadableValues): ClusterMeta {
  return unreadable.read(CLUSTER_RECORDS.meta, entry) ?? contradicted(entry, unreadable);
}

/** Reads the value of the key `head` in etcd. Throws a `Contradiction` if it cannot be read. */
export function headIn(entry: KeyValue, unreadable: UnreadableValues): PolicyHead {
  return unreadable.read(RECORDS.head, entry) ?? contradicted(entry, unreadable);
}

function contradicted({ key }: KeyValue, unreadable: UnreadableValues): never {
  throw new Contradiction('unreadable', `the key ${key} in etcd cannot be read: ${unreadable.reasons.get(key)}`);
}

async function contains(kv: SuccessionPorts['kv'], prefix: string): Promise<boolean> {
  for await (const _ of kv.iterate({ gte: prefix, lt: `${prefix}\uffff`, limit: 1 })) return true;
  return false;
}

async function localHead(kv: SuccessionPorts['kv']): Promise<PolicyHead | null> {
  const bytes = await kv.get(HEAD);
  return bytes === null ? null : RECORDS.head.read(HEAD, bytes);
}

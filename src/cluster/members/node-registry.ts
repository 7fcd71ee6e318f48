import type { Operation } from '#cluster/etcd/etcd-types.js';
import type { ClusterData } from '#cluster/keys.js';
import { CLUSTER_RECORDS, type RegisteredNode } from '#cluster/records.js';
import { storeFailure } from '#cluster/store-failure.js';
import { intactRecords } from '#store/records/intact-values.js';
import { encodeJson } from '#store/records/json-value.js';
import { RECORDS, type RemovedNode } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';

export const nodeKey = (id: string): string => CLUSTER_RECORDS.node.prefix + id;
/**
 * `identity`: the identity of the data folder of the removed node. The id is not used, because another node
 * can get the same id later.
 */
export const removedKey = (identity: string): string => RECORDS.removedNode.prefix + identity;

const WRITE = { withinMs: 5_000 };

/**
 * Returns the nodes of the cluster from the replica of this node, sorted by id. Omits records that cannot be
 * read.
 */
export async function registeredNodes(kv: KvStore): Promise<readonly RegisteredNode[]> {
  const nodes: RegisteredNode[] = [];
  for await (const [, node] of intactRecords(kv, CLUSTER_RECORDS.node, () => {})) nodes.push(node);
  return nodes;
}

type Ports = ClusterData & { readonly kv: KvStore };
export type NodeRemoval = { readonly id: string; readonly by: string; readonly dryRun: boolean };

/**
 * Removes a node from the cluster. The node loses its membership at once, and cannot join again with its data
 * folder. Throws `node_unknown` if the cluster does not have the node.
 */
export async function removeNode({ client, keys, kv }: Ports, { id, by, dryRun }: NodeRemoval): Promise<void> {
  try {
    const registered = keys.inEtcd(nodeKey(id));
    const { found } = await client.transact({ when: [], apply: [{ type: 'get', key: registered }] }, WRITE);
    const entry = found[0]?.[0];
    if (entry === undefined) throw new StoreError('node_unknown', `the cluster has no node ${id}`);
    if (dryRun) return;
    const { value: node, reason } = CLUSTER_RECORDS.node.reading(nodeKey(id), entry.value);
    if (node === undefined) {
      const cure = `start the node, which writes it again, or remove it with \`etcdctl del ${registered}\``;
      throw new StoreError('store_damaged', `the key ${registered} in etcd cannot be read (${reason}): ${cure}`);
    }
    const { identity } = node;
    const tokenKeys: string[] = [];
    const { tokenKey } = RECORDS;
    for await (const [key, { node: signer }] of intactRecords(kv, tokenKey, () => {}))
      if (signer === id) tokenKeys.push(key.slice(tokenKey.prefix.length));
    const removed: RemovedNode = { id, by, at: new Date().toISOString(), tokenKeys };
    const removals = [registered, keys.member(id), ...tokenKeys.map((kid) => keys.inEtcd(tokenKey.prefix + kid))];
    const { succeeded } = await client.transact(
      {
        when: [{ key: registered, modRevision: entry.modRevision }],
        apply: [
          { type: 'put', key: keys.inEtcd(removedKey(identity)), value: encodeJson(removed) },
          ...removals.map((key): Operation => ({ type: 'delete', key })),
        ],
      },
      WRITE,
    );
    if (!succeeded) throw new StoreError('revision_conflict', `the node ${id} was changed at the same time`);
  } catch (failure) {
    throw storeFailure(`remove the node ${id}`, failure);
  }
}

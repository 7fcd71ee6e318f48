import { decodeJson, encodeJson, under } from '#store/json-value.js';
import { REMOVED_NODE, type RemovedNode } from '#store/shared-tokens.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore } from '#store/store-types.js';
import type { EtcdClient } from './etcd/etcd-client.js';
import type { Operation } from './etcd/etcd-types.js';
import type { ClusterKeys } from './keys.js';
import { storeFailure } from './store-failure.js';

/** A node that has joined the cluster, whether it runs or not. */
export type RegisteredNode = {
  readonly id: string;
  /** The identity of the data folder of the node. */
  readonly identity: string;
  /** The address of the peer listener. */
  readonly address: string;
  readonly version: string;
  /** When the node joined the cluster. ISO 8601, UTC. */
  readonly since: string;
  /** Fingerprints of the certificates of its peer listener. An older build registers none. */
  readonly certificates?: readonly string[];
};

export const nodeKey = (id: string): string => `cluster-node/${id}`;
/** `identity`: the identity of the data folder of the node. Another node can have the id later. */
export const removedKey = (identity: string): string => REMOVED_NODE + identity;

const TOKEN_KEYS = 'token-key/';
const WRITE = { withinMs: 5_000 };

/** Returns the nodes of the cluster that the replica of this node knows, sorted by id. */
export async function registeredNodes(kv: KvStore): Promise<readonly RegisteredNode[]> {
  const nodes: RegisteredNode[] = [];
  for await (const [, value] of kv.iterate(under('cluster-node/'))) nodes.push(decodeJson<RegisteredNode>(value));
  return nodes;
}

type Ports = { readonly client: EtcdClient; readonly keys: ClusterKeys; readonly kv: KvStore };
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
    const { identity } = decodeJson<RegisteredNode>(entry.value);
    const tokenKeys: string[] = [];
    for await (const [key, value] of kv.iterate(under(TOKEN_KEYS)))
      if (decodeJson<{ readonly node: string }>(value).node === id) tokenKeys.push(key.slice(TOKEN_KEYS.length));
    const removed: RemovedNode = { id, by, at: new Date().toISOString(), tokenKeys };
    const removals = [registered, keys.member(id), ...tokenKeys.map((kid) => keys.inEtcd(TOKEN_KEYS + kid))];
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

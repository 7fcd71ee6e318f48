import { Cluster } from '#cluster/cluster.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import type { KvStore, PolicyStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy } from '#test/store/stored-policy.js';
import { NO_PEERS } from './etcd-cluster.js';
import type { etcdOfFile } from './etcd-of-file.js';

export type MemoryNode = { readonly cluster: Cluster; readonly policies: PolicyStore; readonly kv: KvStore };

/** Returns the functions that make nodes without a dataplane, whose stores are in memory. */
export function memoryNodes(started: Pick<ReturnType<typeof etcdOfFile>, 'etcd' | 'stops'>) {
  const { stops } = started;
  /** Starts the cluster part of a node. */
  async function nodeOf(id: string): Promise<MemoryNode> {
    const kv = createMemoryStore();
    const cluster = new Cluster(kv, {
      etcd: started.etcd.options,
      prefix: '/weir',
      ...NO_PEERS,
      self: { id, address: '127.0.0.1:1', version: '1.0.0' },
      local: [],
      seal: null,
    });
    const policies = await loadPolicyStore(kv, noCopy, () => {}, cluster.commits);
    stops.push(() => cluster.store.close());
    return { cluster, policies, kv };
  }

  /** Makes a node a member that follows etcd. Returns a function that ends both. */
  async function takesPart({ cluster }: MemoryNode): Promise<() => void> {
    const joined = new Promise<() => void>((resolve, reject) => {
      const joining = cluster.join().subscribe({
        next: ({ type }) => type === 'member.joined' && resolve(() => joining.unsubscribe()),
        error: reject,
      });
      stops.push(() => joining.unsubscribe());
    });
    const following = cluster.follow().subscribe({ error: () => {} });
    stops.push(() => following.unsubscribe());
    const leave = await joined;
    await cluster.connectedWithin(5_000);
    return () => {
      following.unsubscribe();
      leave();
    };
  }
  return { nodeOf, takesPart };
}

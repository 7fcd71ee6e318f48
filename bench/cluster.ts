import { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { ClusterNode, startNodes } from '#test/cluster/node-cluster.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import type { Bench, Row } from './bench.js';
import { quantile } from './cluster/quantile.js';
import { residentMiB } from './resident.js';

/** The number of blocks of writes to the cluster. A block of writes to the single node follows each. */
const BLOCKS = 10;
const WRITES_OF_BLOCK = 20;
const PATH = '/api/v1/policy';
const policyOf = (address: string) => ({
  default_policy: 'deny',
  source_groups: [{ id: 'lan', mode: 'enforce', sources: { ips: [address] }, rules: [] }],
});

/**
 * Measures a small policy write in a cluster of three nodes on three members of etcd, and at a single node.
 * All run on this machine, without a dataplane.
 */
export const clusterBench: Bench = {
  name: 'cluster',
  run: async () => {
    const etcd = await EtcdCluster.start('bench');
    const leave = enterNamespace(etcd.namespace);
    const alone = new ClusterNode('alone', 9, etcd, { cluster: null });
    let nodes: readonly ClusterNode[] = [];
    try {
      nodes = await startNodes(etcd, 3);
      alone.start();
      await alone.serves();
      const [shared, single] = await writtenInTurns(nodes[0], alone);
      const row = (what: string, share: number, atMost: number): Row => ({
        what,
        value: quantile(shared, share) - quantile(single, share),
        unit: 'ms',
        atMost,
      });
      return [
        { what: 'a single node: small write, p50', value: quantile(single, 0.5), unit: 'ms' },
        { what: 'three nodes: small write, p50', value: quantile(shared, 0.5), unit: 'ms' },
        row('three nodes add, p50', 0.5, 30),
        row('three nodes add, p99', 0.99, 100),
        {
          what: 'resident, beyond a single node',
          value: residentMiB(nodes[1]?.pid ?? 0) - residentMiB(alone.pid),
          unit: 'MiB',
          atMost: 40,
        },
      ];
    } finally {
      await Promise.all([...nodes, alone].map((node) => node.end()));
      leave();
      await etcd.remove();
    }
  },
};

/** Returns the times of writes at the cluster and at the single node in ms, sorted. */
async function writtenInTurns(
  first: ClusterNode | undefined,
  alone: ClusterNode,
): Promise<readonly [readonly number[], readonly number[]]> {
  const shared: number[] = [];
  const single: number[] = [];
  // The first block of each node does not count.
  for (let block = 0; block <= BLOCKS; block++) {
    const [one, other] = [await written(first, block), await written(alone, block)];
    if (block > 0) shared.push(...one);
    if (block > 0) single.push(...other);
  }
  const ascending = (times: readonly number[]): readonly number[] => times.toSorted((a, b) => a - b);
  return [ascending(shared), ascending(single)];
}

async function written(node: ClusterNode | undefined, block: number): Promise<readonly number[]> {
  const times: number[] = [];
  for (let write = 0; write < WRITES_OF_BLOCK; write++) {
    const began = performance.now();
    const reply = await node?.request('PUT', PATH, policyOf(`10.0.${block}.${write}`));
    if (reply?.status !== 200) throw new Error(`PUT ${PATH}: ${reply?.status} ${reply?.text}`);
    times.push(performance.now() - began);
  }
  return times;
}

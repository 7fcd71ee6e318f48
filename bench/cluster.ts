import { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { ClusterNode, startNodes } from '#test/cluster/node-cluster.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import type { Bench, Row } from './bench.js';
import { quantile } from './cluster/quantile.js';
import { residentMiB } from './resident.js';

const ROUNDS = 60;
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
      const [shared, single] = [await written(nodes[0]), await written(alone)];
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

/** Returns the times of writes in ms, sorted. */
async function written(node: ClusterNode | undefined): Promise<readonly number[]> {
  const times: number[] = [];
  for (let round = -10; round < ROUNDS; round++) {
    const began = performance.now();
    const reply = await node?.request('PUT', PATH, policyOf(`10.0.0.${round + 20}`));
    if (reply?.status !== 200) throw new Error(`PUT: ${reply?.status} ${reply?.text}`);
    if (round >= 0) times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b);
}

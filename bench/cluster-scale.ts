import { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import type { Bench, Row } from './bench.js';
import { away } from './cluster/away.js';
import { idle } from './cluster/idle.js';
import { oneGroup } from './cluster/one-group.js';
import { simulation } from './cluster/simulation.js';

/**
 * Measures how a cluster behaves with a large policy and with many nodes. Each of the four measurements
 * starts three etcd servers. All run on this machine; only the idle nodes have a dataplane.
 */
export const clusterScaleBench: Bench = {
  name: 'cluster-scale',
  run: async () => {
    const rows: Row[] = [];
    for (const part of [oneGroup, away, simulation, idle]) rows.push(...(await withEtcd(part)));
    return rows;
  },
};

async function withEtcd(part: (etcd: EtcdCluster) => Promise<readonly Row[]>): Promise<readonly Row[]> {
  const etcd = await EtcdCluster.start('bench');
  const leave = enterNamespace(etcd.namespace);
  try {
    return await part(etcd);
  } finally {
    leave();
    await etcd.remove();
  }
}

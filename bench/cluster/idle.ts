import { setTimeout as pause } from 'node:timers/promises';
import { ProbedPlaces } from '#test/chaos/probed-places.js';
import type { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { ClusterNode, startNodes } from '#test/cluster/node-cluster.js';
import type { Row } from '../bench.js';
import { processorTimeUs } from '../inspection/processor-time.js';
import { residentMiB } from '../resident.js';

/**
 * How long the nodes run idle before the measurement. In the first minute, V8 still compiles functions of the
 * cluster to machine code: measured after 15 s, a node of the cluster uses twice as much.
 */
const REST_MS = 60_000;
const IDLE_MS = 60_000;
const POLICY = { default_policy: 'deny', source_groups: [] };

const IDS = ['n1', 'n2', 'n3'];

/**
 * The processor time and the memory of idle nodes of a cluster, beyond those of a single node. All nodes have
 * a dataplane, and the nodes of the cluster have a peer listener.
 */
export async function idle(etcd: EtcdCluster): Promise<Row[]> {
  const probed = await ProbedPlaces.create(etcd, [...IDS, 'idle']);
  const alone = new ClusterNode('idle', 9, etcd, { cluster: null }, probed.places[IDS.length]);
  let nodes: readonly ClusterNode[] = [];
  try {
    nodes = await startNodes(etcd, IDS.length, {}, probed.places);
    alone.start();
    await alone.serves();
    await Promise.all([...nodes, alone].map((node) => node.passes('dataplane_running')));
    for (const node of [nodes[0], alone]) {
      const reply = await node?.request('PUT', '/api/v1/policy', POLICY);
      if (reply?.status !== 200) throw new Error(`PUT /api/v1/policy: ${reply?.status} ${reply?.text}`);
    }
    await pause(REST_MS);
    const times = (): number[] => [alone, ...nodes].map(({ pid }) => processorTimeUs([pid]));
    const before = times();
    await pause(IDLE_MS);
    const shares = times().map((time, index) => ((time - (before[index] ?? 0)) / (IDLE_MS * 1_000)) * 100);
    const [single = 0, ...shared] = shares;
    const memory = nodes.map(({ pid }) => residentMiB(pid));
    return [
      { what: 'a single node, idle', value: single, unit: '% of a core' },
      {
        what: 'a node of the cluster, idle, beyond a single node',
        value: Math.max(...shared) - single,
        unit: '% of a core',
        atMost: 1,
      },
      {
        what: 'a node of the cluster, idle, memory beyond a single node',
        value: Math.max(...memory) - residentMiB(alone.pid),
        unit: 'MiB',
        atMost: 40,
      },
    ];
  } finally {
    await Promise.all([...nodes, alone].map((node) => node.end()));
    await probed.remove();
  }
}

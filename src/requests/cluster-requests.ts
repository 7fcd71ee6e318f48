import type { Refusal } from '#bus/policy-requests.js';
import type { Cluster } from '#cluster/cluster.js';
import type { Keep } from '#cluster/recovery.js';
import { refusal } from '#statecharts/refusal.js';
import { orRefusal } from './or-refusal.js';

/** The cluster as this node sees it. Without a cluster section, `enabled` is false. */
type ClusterView = {
  readonly enabled: boolean;
  readonly nodeId: string;
  readonly clusterId: string | null;
  readonly connected: boolean;
  readonly leader: string | null;
  /** The generation that this node enforces. */
  readonly generation: number;
  /** The revision of etcd that this node has applied. */
  readonly revision: number | null;
  /** The revision of the newest change that this node has received from etcd. */
  readonly seen: number | null;
  /** Why etcd contradicts this node; null if it does not. */
  readonly contradiction: string | null;
  /** Whether the database of etcd is full. */
  readonly isFull: boolean;
  /** Null while etcd cannot be reached. */
  readonly members:
    | readonly {
        readonly id: string;
        readonly address: string;
        readonly version: string;
        readonly generation: number;
        readonly since: string;
      }[]
    | null;
};

export type ClusterRequests = {
  status(): Promise<ClusterView>;
  /** Creates the cluster in etcd. Returns null on success. */
  init(write: { readonly dryRun: boolean }): Promise<Refusal | null>;
  /** Ends a contradiction between this node and etcd. Returns null on success. */
  recover(write: { readonly keep: Keep; readonly dryRun: boolean }): Promise<Refusal | null>;
};

type Ports = {
  /** The cluster; null if the configuration has no `cluster` section. */
  readonly cluster: Cluster | null;
  readonly nodeId: string;
  readonly generation: () => number;
  /** The generation that the kernel enforced when the process started. */
  readonly adoptedGeneration: () => number;
  /** Tells the node that a contradiction has ended. */
  readonly recovered: () => void;
};

/** How long `init` and `recover` wait for the connection of this node to the changed cluster. */
const CONNECT_MS = 5_000;
const NO_CLUSTER = refusal('no_cluster', 'the configuration of this node has no cluster section');

export function clusterRequestsOver(ports: Ports): ClusterRequests {
  const { cluster, nodeId, generation, adoptedGeneration, recovered } = ports;
  const change = (dryRun: boolean, act: (cluster: Cluster) => Promise<void>): Promise<Refusal | null> =>
    orRefusal<null>(async () => {
      if (cluster === null) return NO_CLUSTER;
      await act(cluster);
      if (dryRun) return null;
      recovered();
      await cluster.connectedWithin(CONNECT_MS);
      return null;
    });
  return {
    status: async () => {
      if (cluster === null) {
        const absent = {
          clusterId: null,
          leader: null,
          revision: null,
          seen: null,
          members: null,
          contradiction: null,
        };
        return { enabled: false, nodeId, generation: generation(), connected: false, isFull: false, ...absent };
      }
      const { line, leader, revision, seen, ...status } = await cluster.status();
      return {
        enabled: true,
        nodeId,
        clusterId: line,
        leader,
        generation: generation(),
        revision: Number(revision),
        seen: Number(seen),
        connected: status.connected,
        contradiction: status.contradiction,
        isFull: status.isFull,
        members: status.members,
      };
    },
    init: ({ dryRun }) => change(dryRun, (present) => present.init(dryRun)),
    recover: ({ keep, dryRun }) =>
      change(dryRun, (present) => present.recover(keep, Math.max(generation(), adoptedGeneration()), dryRun)),
  };
}

import type { Keep } from '#cluster/replica/recovery.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { orRefusal } from '#store/or-refusal.js';
import type { Cluster } from './cluster.js';
import type { ClusterAccess } from './peers/join-tokens.js';
import type { Peers } from './peers/peers.js';
import type { RegisteredNode } from './records.js';

/** The cluster from the view of this node. `enabled`: false if the configuration has no `cluster` section. */
export type ClusterView = {
  readonly enabled: boolean;
  readonly nodeId: string;
  readonly clusterId: string | null;
  readonly connected: boolean;
  readonly leader: string | null;
  /** The generation that this node enforces. */
  readonly generation: number;
  /** The revision of etcd that this node has applied. */
  readonly revision: number | null;
  /** The etcd revision of the newest change that this node has received. */
  readonly seen: number | null;
  /** Why the content of etcd contradicts what this node has applied; null without a contradiction. */
  readonly contradiction: string | null;
  /** Whether the database of etcd is full. */
  readonly isFull: boolean;
  /** The values in etcd that this node cannot read and ignores, sorted by key. */
  readonly unreadable: readonly { readonly key: string; readonly reason: string }[];
  /** The present members; null while etcd cannot be reached. */
  readonly members:
    | readonly {
        readonly id: string;
        readonly address: string;
        readonly version: string;
        readonly generation: number;
        /** When the process of the node started. ISO 8601, UTC. */
        readonly since: string;
        /** The setting `dataplane.ipv6`; omitted by a node without a dataplane, and by an older build. */
        readonly ipv6?: 'drop' | 'pass' | 'enforce';
      }[]
    | null;
};

export type ClusterOperations = {
  status(): Promise<ClusterView>;
  /** Creates the cluster in etcd. Returns null on success. */
  init(write: { readonly dryRun: boolean; readonly author: string }): Promise<Refusal | null>;
  /**
   * Resolves a contradiction between the policies of this node and those in etcd. Returns null on success.
   */
  recover(write: { readonly keep: Keep; readonly dryRun: boolean; readonly author: string }): Promise<Refusal | null>;
  /** Returns all nodes that have joined the cluster, sorted by id. */
  nodes(): Promise<readonly ClusterNode[]>;
  /** Removes a node from the cluster. Returns null on success. */
  remove(removal: { readonly id: string; readonly author: string; readonly dryRun: boolean }): Promise<Refusal | null>;
  /** Issues a token with which one other node can join the cluster. */
  issueJoinToken(): { readonly token: string; readonly expiresAt: Date } | Refusal;
  /**
   * Returns the addresses and credentials that a node needs to join the cluster, and makes the join token
   * invalid. Null if no valid join token has the secret.
   */
  redeemJoinToken(secret: string): Promise<ClusterAccess | null>;
};
export type ClusterNode = Pick<RegisteredNode, 'id' | 'address' | 'version'> & {
  /**
   * When the node joined the cluster. ISO 8601, UTC. If the member runs an older build that does not register
   * nodes, this is the time when its process started.
   */
  readonly joinedAt: string;
  /** The generation that the node enforces, and when its process started; null if the node is absent. */
  readonly member: { readonly generation: number; readonly since: string } | null;
};

/** The other nodes of the cluster. A node without a cluster has none. */
export type PeerOperations = Pick<Peers, 'askAll' | 'open' | 'others' | 'nodeWith'>;
export const NO_PEERS: PeerOperations = {
  askAll: async () => ({ asked: 0, failures: [] }),
  open: async (node) => {
    throw new Error(`there is no node ${node}`);
  },
  others: async () => [],
  nodeWith: async () => null,
};

type Ports = {
  /** The cluster; null if the configuration has no `cluster` section. */
  readonly cluster: Cluster | null;
  readonly nodeId: string;
  readonly generation: () => number;
  /** The generation that the kernel enforced when the process started. */
  readonly adoptedGeneration: () => number;
  /** Called when a contradiction between the policies in etcd and those of this node was resolved. */
  readonly recovered: () => void;
};

/**
 * The maximum time in milliseconds for which `init` and `recover` wait until this node is connected to the
 * changed cluster.
 */
const CONNECT_MS = 5_000;
const NO_CLUSTER = refusal('no_cluster', 'the configuration of this node has no cluster section');

export function clusterOperations(ports: Ports): ClusterOperations {
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
          unreadable: [],
        };
        return { enabled: false, nodeId, generation: generation(), connected: false, isFull: false, ...absent };
      }
      const { clusterId, leader, revision, seen, ...status } = await cluster.status();
      return {
        enabled: true,
        nodeId,
        clusterId,
        leader,
        generation: generation(),
        revision: Number(revision),
        seen: Number(seen),
        connected: status.connected,
        contradiction: status.contradiction,
        isFull: status.isFull,
        unreadable: [...status.unreadable]
          .map(([key, reason]) => ({ key, reason }))
          .sort((a, b) => (a.key < b.key ? -1 : 1)),
        members: status.members,
      };
    },
    init: ({ dryRun }) => change(dryRun, (present) => present.init(dryRun)),
    recover: ({ keep, dryRun }) =>
      change(dryRun, (present) => present.recover(keep, Math.max(generation(), adoptedGeneration()), dryRun)),
    nodes: async () => {
      if (cluster === null) return [];
      const members = new Map((await cluster.status()).members?.map((member) => [member.id, member]));
      // Start from the members, because an older build does not register its node.
      const nodes = new Map([...members.values(), ...(await cluster.nodes())].map((node) => [node.id, node]));
      const sorted = [...nodes.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
      return sorted.map(({ id, address, version, since }) => ({
        id,
        address,
        version,
        joinedAt: since,
        member: members.get(id) ?? null,
      }));
    },
    remove: ({ id, author, dryRun }) =>
      orRefusal<null>(async () => {
        if (cluster === null) return NO_CLUSTER;
        await cluster.remove({ id, by: author, dryRun });
        return null;
      }),
    issueJoinToken: () => (cluster === null ? NO_CLUSTER : cluster.issueJoinToken()),
    redeemJoinToken: async (secret) => (await cluster?.redeemJoinToken(secret)) ?? null,
  };
}

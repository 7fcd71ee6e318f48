import { z } from 'zod';
import type { PolicyProposal } from '#bus/bus-messages.js';
import type { Refusal } from '#contracts/refusal.js';
import { count, id, instant, policyFields, text } from '#store/records/record-fields.js';
import { RecordKind } from '#store/records/record-kind.js';
import { RECORDS } from '#store/records/records.js';

const digits = z.string().regex(/^\d+$/, 'it is no revision');
const certificates = z.array(text).exactOptional();
/** The schema of an address: `https://ADDRESS` must be a valid URL. */
const address = z.string().refine((value) => URL.canParse(`https://${value}`), 'it is no address');

/** The value of the key `meta`: the identity of a cluster, which the first node of the cluster writes. */
export type ClusterMeta = {
  /** The id of the cluster. */
  readonly line: string;
  /**
   * The number of times that an operator has recovered the cluster from a contradiction. After a recovery,
   * etcd may begin its revisions anew.
   */
  readonly recoveries: number;
  readonly format: 1;
};

const IPV6_SETTINGS = ['drop', 'pass', 'enforce'] as const;
type Ipv6Setting = (typeof IPV6_SETTINGS)[number];

/** A present member of the cluster. Each node writes this record about itself to etcd. */
export type ClusterMember = {
  readonly id: string;
  /** The identity of the data folder of the node, which is different for each node. */
  readonly identity: string;
  /** A random id of the process of the node. */
  readonly boot: string;
  /** The address of the peer listener, for example `10.0.0.1:7443`. */
  readonly address: string;
  readonly version: string;
  /** When the process of the node started. ISO 8601, UTC. */
  readonly since: string;
  /** The generation that the node enforces. */
  readonly generation: number;
  /** The setting `dataplane.ipv6`. Omitted by a node without a dataplane, and by an older build. */
  readonly ipv6?: Ipv6Setting;
  /** Fingerprints of the certificates of its peer listener. A build without a peer listener omits them. */
  readonly certificates?: readonly string[];
};

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

/** The state of the replica in the local store. */
export type ReplicaState = {
  /** The id of the cluster; an empty text if this node is in none. */
  readonly line: string;
  readonly recoveries: number;
  /** The revision of etcd up to which the local store contains the replicated keys. */
  readonly revision: string;
  /** The revision of etcd up to which the local store contains the history of policies. */
  readonly history: string;
};

export type Proposal = Omit<PolicyProposal, 'id' | 'node'>;
export type LockValue = { readonly node: string; readonly proposal?: Proposal };
export type Vote = { readonly node: string; readonly staged: boolean; readonly refusal: Refusal | null };
export type HealthReport = { readonly fault: string | null };

const proposal: z.ZodType<Proposal> = z.object({
  generation: count,
  record: z
    .object({
      ...policyFields,
      active: z.boolean(),
    })
    .nullable(),
  bodySha256: z.string().regex(/^([0-9a-f]{64})?$/, 'it is no SHA-256'),
  group: z.object({ id: text, from: count, to: count }).exactOptional(),
  bodies: z.record(text, text).exactOptional(),
});

/**
 * The records that exist only in etcd and not in local stores, by the prefix of their keys below the prefix
 * of the cluster.
 */
export const CLUSTER_RECORDS = {
  meta: new RecordKind<ClusterMeta>('meta', z.object({ line: id, recoveries: count, format: z.literal(1) })),
  /** The field of `meta` that every version of its format contains. */
  metaFormat: new RecordKind<{ readonly format: number }>('meta', z.object({ format: z.int() })),
  leader: new RecordKind<{ readonly node: string }>('leader', z.object({ node: id })),
  lockEntry: new RecordKind<LockValue>('turn/', z.object({ node: id, proposal: proposal.exactOptional() })),
  member: new RecordKind<ClusterMember>(
    'member/',
    z.object({
      id,
      identity: id,
      boot: text,
      address,
      version: text,
      since: instant,
      generation: count,
      ipv6: z.enum(IPV6_SETTINGS).exactOptional(),
      certificates,
    }),
    (member) => member.id,
  ),
  node: new RecordKind<RegisteredNode>(
    'cluster-node/',
    z.object({ id, identity: id, address, version: text, since: instant, certificates }),
    (node) => node.id,
  ),
  vote: new RecordKind<Vote>(
    'vote/',
    // Accept any code of a refusal, because a node with a newer build may use new codes.
    z.object({
      node: id,
      staged: z.boolean(),
      refusal: (
        z.object({ kind: z.literal('refused'), code: text, detail: text }) as z.ZodType<unknown> as z.ZodType<Refusal>
      ).nullable(),
    }),
  ),
  report: new RecordKind<HealthReport>('rollout/', z.object({ fault: text.nullable() })),
} as const;

/** The records about the cluster that a node keeps in its local store. */
export const NODE_RECORDS = {
  replica: new RecordKind<ReplicaState>(
    'cluster/replica',
    z.object({ line: text, recoveries: count, revision: digits, history: digits }),
  ),
  /**
   * If this record is damaged, no new identity may be created, because a removed node could join the cluster
   * again with it.
   */
  identity: new RecordKind<string>('cluster/identity', id),
  /** The keys of the parts of a policy text whose write is not committed yet. */
  proposed: new RecordKind<readonly string[]>('cluster/proposed/', z.array(text)),
} as const;

/** The records that the replica of each node contains. */
export const REPLICATED_RECORDS = [
  RECORDS.head,
  RECORDS.policy,
  RECORDS.performanceMode,
  RECORDS.interceptCa,
  RECORDS.assertions,
  RECORDS.integration,
  RECORDS.clusterToken,
  RECORDS.tokenKey,
  RECORDS.removedNode,
  CLUSTER_RECORDS.node,
] as const;

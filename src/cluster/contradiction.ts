/** Why this node must neither follow nor write the store in etcd. */
export type ContradictionCode =
  /** etcd has no cluster below the configured key prefix, and this node was never in a cluster. */
  | 'uninitialized'
  /** etcd no longer has a cluster below the configured key prefix, but this node was in a cluster. */
  | 'wiped'
  /** etcd has another cluster than the cluster of this node. */
  | 'other_cluster'
  /** This node has its own policies, and was never in a cluster. */
  | 'own_policies'
  /** etcd lacks writes that this node has applied, for example after the restore of a backup. */
  | 'older'
  /** etcd has other writes in place of writes that this node has applied. */
  | 'forked'
  /**
   * The value of the key `meta` or `head` in etcd cannot be read, so the active policy of the cluster is
   * unknown.
   */
  | 'unreadable';

/** Thrown if the store in etcd contradicts the replica of this node. */
export class Contradiction extends Error {
  override readonly name = 'Contradiction';
  constructor(
    readonly code: ContradictionCode,
    message: string,
  ) {
    super(message);
  }
}

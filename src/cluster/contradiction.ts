/**
 * Why the content of etcd contradicts this node. The node then neither applies changes of etcd nor writes to
 * it.
 */
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
  /** The last write that this node has applied differs from the write at the same position in etcd. */
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

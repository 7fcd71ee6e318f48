/** Why this node must neither follow nor write the store in etcd. */
export type ContradictionCode =
  /** etcd has no cluster below the prefix, and this node was in none. */
  | 'uninitialized'
  /** etcd has no cluster any more, and this node was in one. */
  | 'wiped'
  /** etcd has another cluster than the cluster of this node. */
  | 'other_cluster'
  /** This node has policies of its own, and was in no cluster. */
  | 'own_policies'
  /** etcd lacks writes that this node has applied, for example after the restore of a backup. */
  | 'older'
  /** etcd has other writes in place of writes that this node has applied. */
  | 'forked'
  /** The key `meta` or `head` of etcd cannot be read, so that it is unknown what the cluster has in force. */
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

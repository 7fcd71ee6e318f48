import type { Families } from './families.js';
import type { ClusterStats } from './stats.js';

/** Creates the metrics of the cluster. On a node without a cluster, all are 0. */
export function clusterMetrics({ gauge }: Families) {
  const connected = gauge('weir_cluster_connected', '1 while this node follows etcd.');
  const leads = gauge('weir_cluster_leader', '1 while this node leads the cluster.');
  const hasLeader = gauge('weir_cluster_has_leader', '1 while a node leads the cluster, as this node sees it.');
  const members = gauge('weir_cluster_members', 'Members of the cluster; 0 while etcd cannot be reached.');
  const revision = gauge('weir_cluster_revision', 'Revision of the newest change of etcd that this node has received.');
  const applied = gauge('weir_cluster_applied_revision', 'Revision of etcd that this node has applied.');
  const lag = gauge('weir_cluster_lag_revisions', 'Revisions of etcd that this node has received and not applied.');
  const contradicted = gauge(
    'weir_cluster_contradicted',
    '1 while etcd contradicts this node, which applies and writes nothing until `weir cluster recover`.',
  );
  const full = gauge(
    'weir_cluster_etcd_full',
    '1 after etcd refused a write of this node because its database is full.',
  );
  const unreadable = gauge(
    'weir_cluster_unreadable_values',
    'Values of etcd that this node cannot read, so that nothing uses them, see `weir cluster status`.',
  );
  const all = [connected, leads, hasLeader, members, revision, applied, lag, contradicted, full, unreadable];

  return {
    stats(stats: ClusterStats | null) {
      for (const metric of all) metric.reset();
      if (stats === null) return;
      connected.set(Number(stats.connected));
      leads.set(Number(stats.isLeader));
      hasLeader.set(Number(stats.leader !== null));
      members.set(stats.members.length);
      revision.set(stats.revision);
      applied.set(stats.appliedRevision);
      lag.set(stats.lag);
      contradicted.set(Number(stats.isContradicted));
      full.set(Number(stats.isFull));
      unreadable.set(stats.unreadable);
    },
  };
}

import type { MembersChanged } from '#contracts/datapath/datapath.js';
import type { GroupMembers, IntegrationStatus, KubernetesStats } from '#contracts/kubernetes/integration-status.js';
import type { KubernetesSource } from '#contracts/kubernetes/kubernetes-source.js';
import { type Refusal, refusal } from '#contracts/refusal.js';
import { type GroupMembersPorts, groupMembersOver, type MembersQuery } from './group-members.js';
import { type IntegrationStatusPorts, integrationStatusOver, stateOf } from './integration-status.js';
import type { Integrations } from './integrations.js';

/** The Kubernetes thread of a node, the actors of its API servers, and the members in the kernel. */
export type KubernetesParts = Pick<IntegrationStatusPorts, 'store' | 'snapshotOf'> & {
  readonly source: Pick<KubernetesSource, 'facts' | 'objectCounts' | 'membersOf'>;
  /** Returns the numbers of addresses of Kubernetes objects; null before the first change of members. */
  readonly members: () => Pick<MembersChanged, 'members' | 'refused'> | null;
  readonly now: () => Date;
};

export type KubernetesOperations = {
  /**
   * Returns the state of an integration (a Kubernetes API server) on this node; null if there is no such
   * integration.
   */
  readonly status: (integration: string) => Promise<IntegrationStatus | Refusal | null>;
  /**
   * Returns a page of the addresses that the selectors of a source group select; null if there is no such
   * policy or group.
   */
  readonly members: (query: MembersQuery) => Promise<GroupMembers | Refusal | null>;
  /** Returns the counters for metrics; null if the node does not watch Kubernetes. */
  readonly stats: () => Promise<KubernetesStats | null>;
};

/** Returns the operations about Kubernetes. `parts`: null if the node does not watch Kubernetes. */
export function kubernetesOperations(
  integrations: Pick<Integrations, 'list' | 'read'>,
  readGroup: GroupMembersPorts['readGroup'],
  parts: KubernetesParts | null,
): KubernetesOperations {
  if (parts === null) {
    const refused = refusal('feature_unavailable', 'this node does not watch Kubernetes');
    return { status: async () => refused, members: async () => refused, stats: async () => null };
  }
  const { source, store, snapshotOf, members, now } = parts;
  const facts: KubernetesSource['facts'] = (name) => source.facts(name);
  const objectCounts: KubernetesSource['objectCounts'] = (name) => source.objectCounts(name);
  return {
    status: integrationStatusOver({ integrations, store, snapshotOf, facts, now }),
    members: groupMembersOver({ readGroup, membersOf: (keys, after, limit) => source.membersOf(keys, after, limit) }),
    stats: kubernetesStatsOver({ integrations, snapshotOf, objectCounts, members, now }),
  };
}

type StatsPorts = Pick<IntegrationStatusPorts, 'snapshotOf' | 'now'> & {
  readonly objectCounts: KubernetesSource['objectCounts'];
  readonly integrations: Pick<Integrations, 'list'>;
  readonly members: () => Pick<MembersChanged, 'members' | 'refused'> | null;
};

function kubernetesStatsOver({ integrations, snapshotOf, objectCounts, members, now }: StatsPorts) {
  const statsOf = async (name: string): Promise<KubernetesStats['integrations'][number]> => {
    const snapshot = snapshotOf(name);
    const staleSince = snapshot?.context.staleSince ?? null;
    return {
      name,
      state: snapshot === undefined ? 'unused' : stateOf(snapshot),
      objects: await objectCounts(name).catch(() => null),
      staleSeconds: staleSince === null ? 0 : Math.max(0, now().getTime() - Date.parse(staleSince)) / 1_000,
    };
  };
  return async (): Promise<KubernetesStats> => {
    const names = (await integrations.list()).map(({ name }) => name);
    const { members: count, refused } = members() ?? { members: 0, refused: 0 };
    return { integrations: await Promise.all(names.map(statsOf)), members: count, membersRefused: refused };
  };
}

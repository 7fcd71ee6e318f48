import type { MembersChanged } from '#contracts/datapath/datapath.js';
import type { KubernetesStats } from '#contracts/kubernetes/integration-status.js';
import type { KubernetesSource } from '#contracts/kubernetes/kubernetes-source.js';
import { type IntegrationStatusPorts, stateOf } from './integration-status.js';
import type { Integrations } from './integrations.js';

type StatsPorts = Pick<IntegrationStatusPorts, 'snapshotOf' | 'now'> & {
  readonly objectCounts: KubernetesSource['objectCounts'];
  readonly integrations: Pick<Integrations, 'list'>;
  readonly members: () => Pick<MembersChanged, 'members' | 'refused'> | null;
};

/** Returns the function that reads the counters of all integrations, for metrics. */
export function kubernetesStatsOver({ integrations, snapshotOf, objectCounts, members, now }: StatsPorts) {
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

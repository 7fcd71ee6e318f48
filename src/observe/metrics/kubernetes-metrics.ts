import { INTEGRATION_STATES, type KubernetesStats } from '#contracts/kubernetes/integration-status.js';
import type { Families } from './families.js';

export function kubernetesMetrics({ gauge }: Families) {
  const state = gauge(
    'weir_kubernetes_integration_state',
    '1 for the state of the integration, 0 for each other state.',
    'integration',
    'state',
  );
  const objects = gauge(
    'weir_kubernetes_objects',
    'Objects of the integration that this node knows.',
    'integration',
    'resource',
  );
  const stale = gauge(
    'weir_kubernetes_stale_seconds',
    'Time since when the objects of the integration can be older than those of the API server; 0 while it is watched or unused.',
    'integration',
  );
  const members = gauge('weir_kubernetes_members', 'Addresses that an object of an integration owns.');
  const refused = gauge(
    'weir_kubernetes_members_refused',
    'Addresses that get only deny rules of groups with selectors because the table of members is full.',
  );
  const all = [state, objects, stale, members, refused];

  return {
    stats(stats: KubernetesStats | null) {
      for (const metric of all) metric.reset();
      if (stats === null) return;
      members.set(stats.members);
      refused.set(stats.membersRefused);
      for (const found of stats.integrations) {
        const integration = found.name;
        for (const one of INTEGRATION_STATES) state.set({ integration, state: one }, one === found.state ? 1 : 0);
        for (const [resource, count] of Object.entries(found.objects ?? {}))
          objects.set({ integration, resource }, count);
        stale.set({ integration }, found.staleSeconds);
      }
    },
  };
}

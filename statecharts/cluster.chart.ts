import { setup } from 'xstate';
import type { ReadinessMeta, ReadinessTag } from './readiness.js';

export type ClusterInput = { readonly configured: boolean };

export const clusterChart = setup({
  types: {
    context: {} as ClusterInput,
    input: {} as ClusterInput,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  guards: { isConfigured: ({ context }) => context.configured },
}).createMachine({
  id: 'cluster',
  type: 'parallel',
  context: ({ input }) => input,
  states: {
    membership: {
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isConfigured', target: 'unserved' }, { target: 'alone' }] },
        alone: {
          tags: 'cluster:ready',
          meta: { part: 'cluster', detail: 'not configured: this node runs without a cluster' },
        },
        unserved: {
          tags: 'cluster:failed',
          meta: {
            part: 'cluster',
            detail:
              'the configuration has a cluster section, which this build does not support: this node runs without a cluster',
          },
        },
      },
    },
    replication: {
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isConfigured', target: 'unserved' }, { target: 'alone' }] },
        alone: {
          tags: 'policy_replication:ready',
          meta: { part: 'policy_replication', detail: 'not configured: policies are stored on this node' },
        },
        unserved: {
          tags: 'policy_replication:failed',
          meta: {
            part: 'policy_replication',
            detail:
              'the configuration has a cluster section, which this build does not support: policies are not replicated',
          },
        },
      },
    },
  },
});

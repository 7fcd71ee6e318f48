import { assign, type EventObject, fromCallback, setup, stateIn } from 'xstate';
import type { Fact } from '#bus/bus-messages.js';
import { notProvided, sentenceOf } from './failure.js';
import { readinessTypes, reports, type Troubles } from './readiness.js';

export type ClusterInput = {
  readonly configured: boolean;
  /** The generation that the node enforces. */
  readonly generation: number;
};

export type ClusterContext = ClusterInput & {
  /** The id of the node that is the leader of the cluster; null if the cluster has no leader. */
  readonly leader: string | null;
  readonly isLeader: boolean;
  /** The newest policy generation in the replica, the copy of etcd on this node. */
  readonly committed: number;
  /**
   * Why this node does not take part in the cluster: etcd contradicts its replica, or contains no cluster
   * yet. Null: the node takes part.
   */
  readonly apart: 'contradicted' | 'uncreated' | null;
  /** Whether the database of etcd is full. */
  readonly isFull: boolean;
  readonly trouble: Troubles;
  readonly notices: Troubles;
};

export type ClusterEvent =
  | Extract<Fact, { type: 'policy.activated' | 'policy.committed' | 'cluster.recovered' }>
  | { readonly type: 'member.joined' }
  | { readonly type: 'member.refused'; readonly reason: string }
  | { readonly type: 'member.lost'; readonly reason: string }
  | { readonly type: 'leader.changed'; readonly leader: string | null; readonly isLeader: boolean }
  /** etcd refuses a write because its database is full, or accepts writes again. */
  | { readonly type: 'etcd.full' | 'etcd.writable' }
  | { readonly type: 'replica.caught_up' }
  | { readonly type: 'replica.lost'; readonly reason: string }
  | { readonly type: 'replica.contradicted'; readonly reason: string }
  /** etcd has no cluster below the prefix yet. */
  | { readonly type: 'replica.uncreated' }
  /**
   * The replica (local copy of the keys in etcd) cannot be written to the disk of this node, or all its
   * changes are written again.
   */
  | { readonly type: 'replica.unkept'; readonly reason: string }
  | { readonly type: 'replica.kept' };

const cluster = setup({
  types: readinessTypes<ClusterContext, ClusterInput, ClusterEvent>(),
  actors: {
    /**
     * Keeps the node a member of the cluster, and takes part in the election of the leader. Sends
     * `member.joined`, `member.refused`, `member.lost`, `etcd.full` and `etcd.writable`.
     */
    join: fromCallback<EventObject>(notProvided('join')),
    /**
     * Makes the replica equal to etcd and follows etcd. Sends `replica.caught_up`, `replica.lost`,
     * `replica.contradicted`, `replica.uncreated`, `replica.unkept` and `replica.kept`.
     */
    replicate: fromCallback<EventObject>(notProvided('replicate')),
    /** Sends `leader.changed` when another node becomes the leader. */
    watchLeader: fromCallback<EventObject>(notProvided('watchLeader')),
  },
  actions: {
    noteLeader: assign((_, params: { leader: string | null; isLeader: boolean }) => ({
      leader: params.leader,
      isLeader: params.isLeader,
    })),
    noteActivated: assign((_, { generation }: { generation: number }) => ({ generation })),
    noteCommitted: assign((_, { generation }: { generation: number }) => ({ committed: generation })),
    noteMemberTrouble: assign(({ context }, { reason }: { reason: string }) => ({
      trouble: { ...context.trouble, cluster: reason },
    })),
    noteReplicaTrouble: assign(({ context }, { reason }: { reason: string }) => ({
      trouble: { ...context.trouble, policy_replication: reason },
    })),
    noteContradiction: assign(({ context }, { reason }: { reason: string }) => ({
      apart: 'contradicted' as const,
      trouble: { ...context.trouble, policy_replication: reason, cluster: reason },
    })),
    noteFull: assign({ isFull: true }),
    noteWritable: assign({ isFull: false }),
    noteUnkept: assign((_, { reason }: { reason: string }) => ({
      notices: {
        policy_replication: `warning: not kept here: the disk does not store changes of the cluster, which wait in memory (${reason})`,
      },
    })),
    noteKept: assign({ notices: {} }),
    noteUncreated: assign({ apart: 'uncreated' as const, trouble: {} }),
    // Ends the contradiction between etcd and this node. While it lasted, `trouble` had only texts about it.
    // Without a contradiction, the text of the check `cluster` stays.
    noteAgreement: assign(({ context: { apart, trouble } }) => ({
      apart: null,
      trouble: apart === null ? without(trouble, 'policy_replication') : {},
    })),
    noteJoined: assign(({ context }) => ({ trouble: without(context.trouble, 'cluster') })),
    nameLag: assign(({ context }) => ({
      trouble: {
        ...context.trouble,
        policy_replication: `generation ${context.committed} is committed, and generation ${context.generation} is in force`,
      },
    })),
  },
  guards: {
    isConfigured: ({ context }) => context.configured,
    isContradicted: ({ context }) => context.apart === 'contradicted',
    isUncreated: ({ context }) => context.apart === 'uncreated',
    isNotContradicted: ({ context }) => context.apart !== 'contradicted',
    isCreated: ({ context }) => context.apart !== 'uncreated',
    leads: ({ context }) => context.isLeader,
    hasLeader: ({ context }) => context.leader !== null,
    isInStep: ({ context }) => context.generation >= context.committed,
    isBehind: ({ context }) => context.generation < context.committed,
    isFull: ({ context }) => context.isFull,
    showsFull: stateIn({ membership: { participating: 'full' } }),
  },
  delays: {
    /**
     * The time in milliseconds after which a check fails because etcd cannot be reached, or because this node
     * has not applied a commit.
     */
    failAfter: 5_000,
  },
});

/** Returns the texts for the readiness report of all parts of the cluster connection except `part`. */
function without(troubles: Troubles, part: keyof Troubles): Troubles {
  const { [part]: _, ...others } = troubles;
  return others;
}

type LeaderChange = { readonly leader: string | null; readonly isLeader: boolean };
type Failed = { readonly event: { readonly error: unknown } };
const noteMemberFailure = {
  type: 'noteMemberTrouble',
  params: ({ event }: Failed) => ({ reason: sentenceOf(event.error) }),
} as const;

const noteLeader = { type: 'noteLeader', params: ({ event }: { event: LeaderChange }) => event } as const;
const leaderChanged = { 'leader.changed': { target: 'leaderless', actions: noteLeader } } as const;

/** The transition after the loss of the connection to etcd. The check fails only after `failAfter`. */
const lostBriefly = {
  'replica.lost': {
    target: 'reconnecting',
    actions: { type: 'noteReplicaTrouble', params: ({ event }: { event: { reason: string } }) => event },
  },
} as const;

/**
 * The statechart of a node in a cluster. Its parallel region `membership` reports the readiness check
 * `cluster`, and the region `replication` reports `policy_replication`. The node enforces its policy in each
 * state, also without etcd.
 */
export const clusterChart = cluster.createMachine({
  id: 'cluster',
  type: 'parallel',
  context: ({ input }) => ({
    ...input,
    leader: null,
    isLeader: false,
    committed: 0,
    apart: null,
    isFull: false,
    trouble: {},
    notices: {},
  }),
  on: {
    'policy.activated': { actions: { type: 'noteActivated', params: ({ event }) => event } },
    'policy.committed': { actions: { type: 'noteCommitted', params: ({ event }) => event } },
    'replica.unkept': { actions: { type: 'noteUnkept', params: ({ event }) => event } },
    'replica.kept': { actions: 'noteKept' },
  },
  states: {
    membership: {
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isConfigured', target: 'participating' }, { target: 'alone' }] },
        alone: {
          ...reports('cluster', 'ready', 'not configured: this node runs without a cluster'),
        },
        participating: {
          initial: 'connecting',
          invoke: [
            { id: 'join', src: 'join', onError: { target: '.cut_off', actions: noteMemberFailure } },
            { id: 'watchLeader', src: 'watchLeader', onError: { target: '.cut_off', actions: noteMemberFailure } },
          ],
          always: [
            { guard: 'isContradicted', target: 'contradicted' },
            { guard: 'isUncreated', target: 'uncreated' },
          ],
          on: {
            'member.joined': [
              { guard: 'isFull', target: '.full', actions: 'noteJoined' },
              { target: '.leaderless', actions: 'noteJoined' },
            ],
            'member.refused': {
              target: '.refused',
              actions: { type: 'noteMemberTrouble', params: ({ event }) => event },
            },
            'member.lost': { target: '.cut_off', actions: { type: 'noteMemberTrouble', params: ({ event }) => event } },
            'leader.changed': { actions: noteLeader },
            'etcd.full': { target: '.full', actions: 'noteFull' },
            'etcd.writable': [
              { guard: 'showsFull', target: '.leaderless', actions: 'noteWritable' },
              { actions: 'noteWritable' },
            ],
          },
          states: {
            connecting: {
              ...reports('cluster', 'starting', 'connecting to etcd'),
            },
            leaderless: {
              ...reports('cluster', 'degraded', 'no node of the cluster leads'),
              always: [
                { guard: 'leads', target: 'leading' },
                { guard: 'hasLeader', target: 'following' },
              ],
            },
            following: {
              ...reports('cluster', 'ready', 'member of the cluster; another node leads'),
              on: leaderChanged,
            },
            leading: {
              ...reports('cluster', 'ready', 'member of the cluster; this node leads'),
              on: leaderChanged,
            },
            full: {
              ...reports(
                'cluster',
                'degraded',
                'the database of etcd is full: etcd refuses writes; compact and defragment it, or raise its quota',
              ),
            },
            refused: {
              ...reports('cluster', 'failed', 'this node is not accepted as a member'),
            },
            cut_off: {
              ...reports('cluster', 'failed', 'no connection to etcd; the node enforces the last policy'),
            },
          },
        },
        contradicted: {
          ...reports(
            'cluster',
            'failed',
            'etcd contradicts this node; the node enforces the last policy, see `weir cluster recover`',
          ),
          always: { guard: 'isNotContradicted', target: 'participating' },
        },
        uncreated: {
          ...reports('cluster', 'failed', 'etcd has no cluster yet, see `weir cluster init`'),
          always: { guard: 'isCreated', target: 'participating' },
        },
      },
    },
    replication: {
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isConfigured', target: 'replicating' }, { target: 'alone' }] },
        alone: {
          ...reports('policy_replication', 'ready', 'not configured: policies are stored on this node'),
        },
        replicating: {
          initial: 'catching_up',
          invoke: {
            id: 'replicate',
            src: 'replicate',
            onError: {
              target: '.standing_by',
              actions: { type: 'noteReplicaTrouble', params: ({ event }) => ({ reason: sentenceOf(event.error) }) },
            },
          },
          on: {
            'cluster.recovered': { target: 'replicating', reenter: true },
            'replica.caught_up': [
              { guard: 'isInStep', target: '.in_step', actions: 'noteAgreement' },
              { target: '.lagging', actions: 'noteAgreement' },
            ],
            'replica.contradicted': {
              target: '.held',
              actions: { type: 'noteContradiction', params: ({ event }) => event },
            },
            'replica.uncreated': { target: '.uncreated', actions: 'noteUncreated' },
            'replica.lost': { actions: { type: 'noteReplicaTrouble', params: ({ event }) => event } },
          },
          states: {
            catching_up: {
              ...reports('policy_replication', 'starting', 'reading the policies of the cluster from etcd'),
              after: { failAfter: 'standing_by' },
            },
            in_step: {
              ...reports('policy_replication', 'ready', 'the newest policy of the cluster is in force'),
              always: { guard: 'isBehind', target: 'applying' },
              on: lostBriefly,
            },
            applying: {
              ...reports('policy_replication', 'ready', 'a new policy of the cluster is being put in force'),
              always: { guard: 'isInStep', target: 'in_step' },
              after: { failAfter: 'lagging' },
              on: lostBriefly,
            },
            lagging: {
              ...reports('policy_replication', 'failed', 'the newest policy of the cluster is not in force'),
              entry: 'nameLag',
              always: { guard: 'isInStep', target: 'in_step' },
              on: lostBriefly,
            },
            reconnecting: {
              ...reports('policy_replication', 'ready', 'connecting to etcd again'),
              after: { failAfter: 'standing_by' },
            },
            standing_by: {
              ...reports(
                'policy_replication',
                'failed',
                'no connection to etcd: the node enforces the last policy, and does not learn of changes',
              ),
            },
            uncreated: {
              ...reports(
                'policy_replication',
                'failed',
                'etcd has no cluster yet; run `weir cluster init` on one node',
              ),
            },
            held: {
              ...reports(
                'policy_replication',
                'failed',
                'etcd contradicts this node, which applies and writes nothing until `weir cluster recover`',
              ),
            },
          },
        },
      },
    },
  },
});

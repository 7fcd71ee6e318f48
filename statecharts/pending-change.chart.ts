import { assign, type EventObject, fromCallback, fromPromise, setup } from 'xstate';
import type { PendingChange } from '#contracts/policy/pending-change.js';
import { notProvided } from './failure.js';

export type PendingChangeInput = {
  /** Whether the node is in a cluster, so that etcd measures the time of a change and the leader ends it. */
  readonly shared: boolean;
};
export type PendingChangeContext = PendingChangeInput & {
  readonly change: PendingChange | null;
  /** Whether this node ends pending changes: true for the leader of a cluster, and for a single node. */
  readonly decides: boolean;
};
type PendingChangeEvent =
  | { readonly type: 'change.noted'; readonly change: PendingChange | null }
  /** This node takes part in a roll-out, and could not reach etcd for some time. */
  | { readonly type: 'node.cut_off' }
  | { readonly type: 'leader.changed'; readonly isLeader: boolean };
/** The input of `decide` and `report`. */
export type NotedChange = { readonly change: PendingChange };

const pending = setup({
  types: {
    context: {} as PendingChangeContext,
    input: {} as PendingChangeInput,
    events: {} as PendingChangeEvent,
  },
  actors: {
    /** Sends `change.noted` with the present pending change, and after each change of it. */
    watchChange: fromCallback<EventObject>(notProvided('watchChange')),
    /** Sends `leader.changed` when this node becomes the leader of the cluster, or ceases to be it. */
    watchLeader: fromCallback<EventObject>(notProvided('watchLeader')),
    /** Waits until the time of the change has passed or its roll-out is decided, and then ends the change. */
    decide: fromPromise<void, NotedChange>(notProvided('decide')),
    /**
     * Reports the health of this node to the leader, and sends the event `node.cut_off` if etcd is
     * unreachable for a long time.
     */
    report: fromCallback<EventObject, NotedChange>(notProvided('report')),
  },
  actions: {
    /** Makes this node enforce the former policy. The other nodes are not affected. */
    revertHere: (_, _params: { change: PendingChange | null }) => {},
    noteChange: assign((_, { change }: { change: PendingChange | null }) => ({ change })),
    noteLeader: assign((_, { isLeader }: { isLeader: boolean }) => ({ decides: isLeader })),
    /**
     * Stops this actor with the error of a child, which can only be a bug. The node chart then starts the
     * actor again.
     */
    die: (_, { failure }: { failure: unknown }) => {
      throw failure;
    },
  },
  guards: {
    mustBeConfirmed: ({ context }) => context.change?.terms.kind === 'confirm',
    isRolledOut: ({ context }) => context.change?.terms.kind === 'rollout',
    mustDecide: ({ context }) => context.change !== null && context.decides,
    isShared: ({ context }) => context.shared,
  },
  delays: {
    /**
     * The time in milliseconds until this node reverts an unconfirmed change by itself. It does so if the
     * leader has not ended the change before, or on a single node, if the store refuses to end it.
     */
    revertAfter: ({ context: { change } }) =>
      change?.terms.kind === 'confirm' ? change.terms.within_ms + MARGIN_MS : 0,
    retry: 1_000,
  },
});
const MARGIN_MS = 15_000;

const noted = ({ context: { change } }: { context: PendingChangeContext }): NotedChange => {
  if (change === null) throw new Error('no policy change is pending');
  return { change };
};

const die = {
  type: 'die',
  params: ({ event }: { readonly event: { readonly error: unknown } }) => ({ failure: event.error }),
} as const;

/**
 * The chart of a pending change. Region `here`: the node reports its health during a roll-out, and reverts
 * the change on this node alone if no other node ends it, for example without etcd. Region `decision`: the
 * leader, or a single node, ends the change for all nodes.
 */
export const pendingChangeChart = pending.createMachine({
  id: 'pendingChange',
  type: 'parallel',
  context: ({ input }) => ({ ...input, change: null, decides: !input.shared }),
  invoke: { id: 'watchChange', src: 'watchChange', onError: { actions: die } },
  states: {
    here: {
      initial: 'none',
      on: {
        'change.noted': { target: '.none', actions: { type: 'noteChange', params: ({ event }) => event } },
      },
      states: {
        none: {
          always: [
            { guard: 'mustBeConfirmed', target: 'unconfirmed' },
            { guard: 'isRolledOut', target: 'rolling_out' },
          ],
        },
        unconfirmed: { after: { revertAfter: 'reverted_here' } },
        rolling_out: {
          invoke: { id: 'report', src: 'report', input: noted, onError: { actions: die } },
          on: { 'node.cut_off': 'reverted_here' },
        },
        reverted_here: { entry: { type: 'revertHere', params: ({ context: { change } }) => ({ change }) } },
      },
    },
    decision: {
      initial: 'waiting',
      on: {
        'change.noted': '.waiting',
        'leader.changed': { target: '.waiting', actions: { type: 'noteLeader', params: ({ event }) => event } },
      },
      states: {
        waiting: { always: { guard: 'mustDecide', target: 'deciding' } },
        deciding: {
          invoke: { id: 'decide', src: 'decide', input: noted, onDone: 'ended', onError: 'failed' },
        },
        failed: { after: { retry: 'waiting' } },
        /** The change has ended in the store. Wait until this node receives this from the store. */
        ended: { after: { retry: 'waiting' } },
      },
    },
    leader: {
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isShared', target: 'watching' }, { target: 'alone' }] },
        alone: {},
        watching: { invoke: { id: 'watchLeader', src: 'watchLeader', onError: { actions: die } } },
      },
    },
  },
});

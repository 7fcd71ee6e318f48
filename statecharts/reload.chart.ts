import { assign, fromPromise, setup } from 'xstate';
import type { Message, RequestMessage } from '#bus/bus-messages.js';
import type {
  ReloadPart,
  ReloadPlan,
  ReloadReport,
  ReloadRequest,
  ReloadResult,
} from '#contracts/config/config-reload.js';
import type { Refusal } from '#contracts/refusal.js';
import { notProvided, sentenceOf } from './failure.js';
import { refusalOf } from './refusal.js';

type Waiting = { readonly id: string; readonly request: ReloadRequest; readonly until: number };

export type ReloadContext = {
  /** The requests in the order of their arrival. The first request is being executed. */
  readonly queue: readonly Waiting[];
  readonly plan: ReloadPlan | null;
  /** The parts of the node, for example the DNS proxy, that already have their new settings. */
  readonly changed: readonly ReloadPart[];
  /** Why the current reload failed; null while it has not failed. */
  readonly failure: Refusal | null;
  /** The parts of the node that could not apply their former settings again, each with the reason. */
  readonly unrestored: readonly string[];
};

const reload = setup({
  types: { context: {} as ReloadContext, events: {} as RequestMessage<'config.reload'> },
  actors: {
    /** Reads and validates the file, and compares it with the running configuration. */
    read: fromPromise<ReloadPlan, { request: ReloadRequest }>(notProvided('read')),
    /** Checks what can be checked in advance: the interfaces, and the policy of a new policy file. */
    validate: fromPromise<void, { plan: ReloadPlan; request: ReloadRequest }>(notProvided('validate')),
    /** Gives a part of the node its new settings. If this fails, the part has its former settings. */
    apply: fromPromise<void, { part: ReloadPart; request: ReloadRequest }>(notProvided('apply')),
    /** Gives a part of the node its former settings again. */
    restore: fromPromise<void, { part: ReloadPart; request: ReloadRequest }>(notProvided('restore')),
  },
  actions: {
    publish: (_, _params: { message: Message }) => {},
    /** Makes the new settings the running configuration, with which the next reload compares. */
    commit: () => {},
    enqueue: assign(({ context }, { id, request, until }: Waiting) => ({
      queue: [...context.queue, { id, request, until }],
    })),
    dequeue: assign(({ context }) => ({
      queue: context.queue.slice(1),
      plan: null,
      changed: [],
      failure: null,
      unrestored: [],
    })),
    notePlan: assign((_, { plan }: { plan: ReloadPlan }) => ({ plan })),
    noteChanged: assign(({ context }) => ({ changed: [...context.changed, nextPart(context)] })),
    noteRestored: assign(({ context }) => ({ changed: context.changed.slice(0, -1) })),
    noteUnrestored: assign(({ context }, { reason }: { reason: string }) => ({
      unrestored: [...context.unrestored, `${lastPart(context)}: ${reason}`],
    })),
    noteFailure: assign((_, { failure }: { failure: Refusal }) => ({ failure })),
  },
  guards: {
    /** Whether the client that sent the first reload request no longer waits for the response. */
    isGivenUp: () => false,
    isRequested: ({ context }) => context.queue.length > 0,
    isDryRun: ({ context }) => context.queue[0]?.request.dryRun === true,
    isEverythingChanged: ({ context }) => context.changed.length === context.plan?.parts.length,
    isNothingChanged: ({ context }) => context.changed.length === 0,
  },
});

function present<T>(value: T | null | undefined): T {
  if (value === undefined || value === null)
    throw new Error('reload the configuration: the request or the list of changes is missing');
  return value;
}
const nextPart = ({ plan, changed }: ReloadContext): ReloadPart => present(plan?.parts[changed.length]);
const requestOf = ({ queue }: ReloadContext): ReloadRequest => present(queue[0]).request;
const lastPart = ({ changed }: ReloadContext): ReloadPart => present(changed.at(-1));

type InContext = { readonly context: ReloadContext };
type Failed = { readonly event: { readonly error: unknown } };

const answered = ({ context }: InContext): { message: Message } => ({
  message: {
    type: 'config.reload_answered',
    id: present(context.queue[0]).id,
    outcome: context.failure === null ? reportOf(present(context.plan)) : failureOf(context, context.failure),
  },
});
const reportOf = ({ applied, unchanged, needsRestart }: ReloadPlan): ReloadReport => ({
  kind: 'reloaded',
  applied,
  unchanged,
  needsRestart,
});
const failureOf = ({ unrestored }: ReloadContext, failure: Refusal): Refusal =>
  unrestored.length === 0
    ? failure
    : {
        ...failure,
        detail: `${failure.detail}; parts that could not get their former settings back: ${unrestored.join(', ')}`,
      };

const ended = (context: ReloadContext, result: ReloadResult): { message: Message } => ({
  message: {
    type: 'config.reloaded',
    by: present(context.queue[0]).request.author,
    result,
    failure: context.failure === null ? null : failureOf(context, context.failure),
    applied: result === 'applied' ? present(context.plan).applied : [],
    needsRestart: context.plan?.needsRestart ?? [],
  },
});

const refusing = {
  target: '#reload.refused',
  actions: {
    type: 'noteFailure',
    params: ({ event }: Failed) => ({ failure: refusalOf(event.error, 'reload_failed') }),
  },
} as const;

/**
 * One reload of the configuration at a time. The parts change in turn. After a failure, the failed part and
 * the changed parts get their former settings again, in the reverse order.
 */
export const reloadChart = reload.createMachine({
  id: 'reload',
  context: { queue: [], plan: null, changed: [], failure: null, unrestored: [] },
  initial: 'idle',
  on: { 'config.reload_requested': { actions: { type: 'enqueue', params: ({ event }) => event } } },
  states: {
    idle: {
      always: [
        // The requester already got the response that the reload failed, so the reload must not change
        // anything now.
        { guard: 'isGivenUp', actions: 'dequeue' },
        { guard: 'isRequested', target: 'reading' },
      ],
    },
    reading: {
      invoke: {
        id: 'read',
        src: 'read',
        input: ({ context }) => ({ request: requestOf(context) }),
        onDone: {
          target: 'validating',
          actions: { type: 'notePlan', params: ({ event }) => ({ plan: event.output }) },
        },
        onError: refusing,
      },
    },
    validating: {
      invoke: {
        id: 'validate',
        src: 'validate',
        input: ({ context }) => ({ plan: present(context.plan), request: present(context.queue[0]).request }),
        onDone: [{ guard: 'isDryRun', target: 'answering' }, { target: 'applying' }],
        onError: refusing,
      },
    },
    refused: {
      always: [
        { guard: 'isDryRun', target: 'answering' },
        {
          target: 'answering',
          actions: { type: 'publish', params: ({ context }) => ended(context, 'refused') },
        },
      ],
    },
    applying: {
      initial: 'choosing',
      states: {
        choosing: {
          always: [
            {
              guard: 'isEverythingChanged',
              target: '#reload.answering',
              actions: ['commit', { type: 'publish', params: ({ context }) => ended(context, 'applied') }],
            },
            { target: 'changing' },
          ],
        },
        changing: {
          invoke: {
            id: 'apply',
            src: 'apply',
            input: ({ context }) => ({ part: nextPart(context), request: requestOf(context) }),
            onDone: { target: 'choosing', actions: 'noteChanged' },
            // Restore the failed part too, because a part may apply the settings after its response has timed
            // out.
            onError: {
              target: '#reload.rolling_back',
              actions: [
                'noteChanged',
                {
                  type: 'noteFailure',
                  params: ({ event }) => ({ failure: refusalOf(event.error, 'reload_failed') }),
                },
              ],
            },
          },
        },
      },
    },
    rolling_back: {
      initial: 'choosing',
      states: {
        choosing: {
          always: [{ guard: 'isNothingChanged', target: '#reload.rolled_back' }, { target: 'restoring' }],
        },
        restoring: {
          invoke: {
            id: 'restore',
            src: 'restore',
            input: ({ context }) => ({ part: lastPart(context), request: requestOf(context) }),
            onDone: { target: 'choosing', actions: 'noteRestored' },
            onError: {
              target: 'choosing',
              actions: [
                { type: 'noteUnrestored', params: ({ event }) => ({ reason: sentenceOf(event.error) }) },
                'noteRestored',
              ],
            },
          },
        },
      },
    },
    rolled_back: {
      always: {
        target: 'answering',
        actions: {
          type: 'publish',
          params: ({ context }) => ended(context, context.unrestored.length === 0 ? 'rolled_back' : 'rollback_failed'),
        },
      },
    },
    answering: {
      always: { target: 'idle', actions: [{ type: 'publish', params: answered }, 'dequeue'] },
    },
  },
});

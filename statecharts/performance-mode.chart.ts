import { assign, type EventObject, fromCallback, fromPromise, setup } from 'xstate';
import type { Message, PerformanceMode, PerformanceModeWrite, RequestMessage } from '#bus/bus-messages.js';
import { backoffMs } from '#contracts/backoff.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { notProvided, sentenceOf } from './failure.js';
import { type ReadinessMeta, type ReadinessTag, reports, type Troubles } from './readiness.js';
import { refusalOf } from './refusal.js';

type Waiting = { readonly id: string; readonly write: PerformanceModeWrite };

/** The setting was changed in the store of the cluster, by any node. Null: it was removed. */
type SettingChanged = { readonly type: 'setting.changed'; readonly mode: PerformanceMode | null };

export type PerformanceModeContext = {
  readonly mode: PerformanceMode;
  /** The latest performance mode of the cluster that is not in force here yet; null if there is none. */
  readonly followed: PerformanceMode | null;
  readonly queue: readonly Waiting[];
  readonly attempts: number;
  readonly trouble: Troubles;
};

const BUILT_IN: PerformanceMode = { enabled: true, source: null, revision: 0 };

const performanceMode = setup({
  types: {
    context: {} as PerformanceModeContext,
    events: {} as RequestMessage<'performance_mode.write'> | SettingChanged,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  actors: {
    /** Reads the stored performance mode; null if it was never written. */
    read: fromPromise<PerformanceMode | null>(notProvided('read')),
    /** Stores the performance mode. Resolves with the performance mode that is stored afterwards. */
    write: fromPromise<PerformanceMode, { write: PerformanceModeWrite }>(notProvided('write')),
    /** Puts a performance mode of the cluster in force on this node. Resolves with this performance mode. */
    follow: fromPromise<PerformanceMode, { mode: PerformanceMode }>(notProvided('follow')),
    /** Sends `setting.changed` after each change of the setting in the store of the cluster. */
    watch: fromCallback<EventObject>(notProvided('watch')),
  },
  actions: {
    publish: (_, _params: { message: Message }) => {},
    enqueue: assign(({ context }, params: Waiting) => ({
      queue: [...context.queue, { id: params.id, write: params.write }],
    })),
    dropFirst: assign(({ context }) => ({ queue: context.queue.slice(1) })),
    remember: assign((_, params: { mode: PerformanceMode | null }) => ({
      mode: params.mode ?? BUILT_IN,
      attempts: 0,
      trouble: {},
    })),
    noteFollowed: assign((_, params: { mode: PerformanceMode | null }) => ({ followed: params.mode ?? BUILT_IN })),
    forgetFollowed: assign({ followed: null }),
    /**
     * Stops this actor with the error of a child, which can only be a bug. The node chart then starts the
     * actor again.
     */
    die: (_, { failure }: { failure: unknown }) => {
      throw failure;
    },
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { performance_mode: params.trouble } })),
  },
  guards: {
    isEnabled: ({ context }) => context.mode.enabled,
    isInForce: ({ context: { followed, mode } }) =>
      followed?.enabled === mode.enabled && followed.revision === mode.revision,
    hasFollowed: ({ context }) => context.followed !== null,
    hasQueued: ({ context }) => context.queue.length > 0,
    firstExpectsAnother: ({ context }) => {
      const expected = context.queue[0]?.write.expectedRevision;
      return expected !== undefined && expected !== context.mode.revision;
    },
  },
  delays: { rereadBackoff: ({ context }) => backoffMs(context.attempts - 1, 500, 30_000) },
});

const answered = (
  context: PerformanceModeContext,
  outcome: { kind: 'changed'; mode: PerformanceMode } | Refusal,
): { message: Message } => ({
  message: { type: 'performance_mode.write_answered', id: present(context.queue[0]).id, outcome },
});

function present<T>(value: T | null | undefined): T {
  if (value === undefined || value === null)
    throw new Error('change the performance mode: the chart has no write of the setting to answer, or no result of it');
  return value;
}

/** The message that the performance mode of this node has changed. */
const changed = ({ context }: { context: PerformanceModeContext }): { message: Message } => ({
  message: { type: 'performance_mode.changed', mode: context.mode },
});

/**
 * The inner states of `enabled` and `disabled`. They put a performance mode of the cluster in force. They
 * take the next write from the queue, store the performance mode, and publish the answer.
 */
const writable = performanceMode.createStateConfig({
  initial: 'current',
  states: {
    current: {
      always: [
        { guard: 'isInForce', target: 'current', reenter: true, actions: 'forgetFollowed' },
        { guard: 'hasFollowed', target: 'following' },
        {
          guard: 'firstExpectsAnother',
          target: 'current',
          reenter: true,
          actions: [
            {
              type: 'publish',
              params: ({ context }) =>
                answered(context, refusal('precondition_failed', `the stored revision is ${context.mode.revision}`)),
            },
            'dropFirst',
          ],
        },
        { guard: 'hasQueued', target: 'writing' },
      ],
    },
    writing: {
      invoke: {
        id: 'write',
        src: 'write',
        input: ({ context }) => ({ write: present(context.queue[0]).write }),
        onDone: {
          target: '#performanceMode.choosing',
          actions: [
            { type: 'remember', params: ({ event }) => ({ mode: event.output }) },
            { type: 'publish', params: ({ context }) => answered(context, { kind: 'changed', mode: context.mode }) },
            { type: 'publish', params: changed },
            'dropFirst',
          ],
        },
        onError: {
          target: 'current',
          actions: [
            {
              type: 'publish',
              params: ({ context, event }) => answered(context, refusalOf(event.error, 'store_unavailable')),
            },
            'dropFirst',
          ],
        },
      },
    },
    following: {
      invoke: {
        id: 'follow',
        src: 'follow',
        input: ({ context }) => ({ mode: present(context.followed) }),
        onDone: {
          target: '#performanceMode.choosing',
          actions: [
            { type: 'remember', params: ({ event }) => ({ mode: event.output }) },
            { type: 'publish', params: changed },
          ],
        },
        onError: { actions: { type: 'die', params: ({ event }) => ({ failure: event.error }) } },
      },
    },
  },
});

export const performanceModeChart = performanceMode.createMachine({
  id: 'performanceMode',
  context: { mode: BUILT_IN, followed: null, queue: [], attempts: 0, trouble: {} },
  initial: 'reading',
  invoke: {
    id: 'watch',
    src: 'watch',
    onError: { actions: { type: 'die', params: ({ event }) => ({ failure: event.error }) } },
  },
  on: {
    'setting.changed': { actions: { type: 'noteFollowed', params: ({ event }) => event } },
    'performance_mode.write_requested': { actions: { type: 'enqueue', params: ({ event }) => event } },
  },
  states: {
    reading: {
      ...reports('performance_mode', 'starting', 'reading the stored setting'),
      invoke: {
        id: 'read',
        src: 'read',
        onDone: {
          target: 'choosing',
          actions: { type: 'remember', params: ({ event }) => ({ mode: event.output }) },
        },
        onError: {
          target: 'backing_off',
          actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
        },
      },
    },
    backing_off: {
      ...reports('performance_mode', 'failed', 'the stored setting could not be read; the built-in default applies'),
      entry: 'countAttempt',
      after: { rereadBackoff: 'reading' },
    },
    choosing: { always: [{ guard: 'isEnabled', target: 'enabled' }, { target: 'disabled' }] },
    enabled: {
      ...reports('performance_mode', 'ready', 'audit findings and wiretap are available'),
      ...writable,
    },
    disabled: {
      ...reports('performance_mode', 'disabled', 'audit findings and wiretap return 503'),
      ...writable,
    },
  },
});

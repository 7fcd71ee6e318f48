import { assign, fromPromise, setup } from 'xstate';
import type { Message, PerformanceMode, PerformanceModeWrite, RequestMessage } from '#bus/bus-messages.js';
import type { Refusal } from '#bus/policy-requests.js';
import { backoffMs, notProvided, sentenceOf } from './failure.js';
import type { ReadinessMeta, ReadinessTag, Troubles } from './readiness.js';
import { refusal, refusalOf } from './refusal.js';

type Waiting = { readonly id: string; readonly write: PerformanceModeWrite };

export type PerformanceModeContext = {
  readonly mode: PerformanceMode;
  readonly queue: readonly Waiting[];
  readonly attempts: number;
  readonly trouble: Troubles;
};

const BUILT_IN: PerformanceMode = { enabled: true, source: null, revision: 0 };

const performanceMode = setup({
  types: {
    context: {} as PerformanceModeContext,
    events: {} as RequestMessage<'performance_mode.write'>,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  actors: {
    /** Reads the stored performance mode; null if it was never written. */
    read: fromPromise<PerformanceMode | null>(notProvided('read')),
    /** Stores the performance mode. Resolves with the performance mode that is stored afterwards. */
    write: fromPromise<PerformanceMode, { write: PerformanceModeWrite; revision: number }>(notProvided('write')),
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
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { performance_mode: params.trouble } })),
  },
  guards: {
    isEnabled: ({ context }) => context.mode.enabled,
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

function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('a write of the performance mode is missing');
  return value;
}

/**
 * The inner states of `enabled` and `disabled`: they take the next write from the queue, store the
 * performance mode, and publish the answer.
 */
const writable = performanceMode.createStateConfig({
  initial: 'current',
  states: {
    current: {
      always: [
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
        input: ({ context }) => ({
          write: present(context.queue[0]).write,
          revision: context.mode.revision + 1,
        }),
        onDone: {
          target: '#performanceMode.choosing',
          actions: [
            { type: 'remember', params: ({ event }) => ({ mode: event.output }) },
            { type: 'publish', params: ({ context }) => answered(context, { kind: 'changed', mode: context.mode }) },
            {
              type: 'publish',
              params: ({ context }) => ({ message: { type: 'performance_mode.changed', mode: context.mode } }),
            },
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
  },
});

export const performanceModeChart = performanceMode.createMachine({
  id: 'performanceMode',
  context: { mode: BUILT_IN, queue: [], attempts: 0, trouble: {} },
  initial: 'reading',
  on: {
    'performance_mode.write_requested': { actions: { type: 'enqueue', params: ({ event }) => event } },
  },
  states: {
    reading: {
      tags: 'performance_mode:starting',
      meta: { part: 'performance_mode', detail: 'reading the stored setting' },
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
      tags: 'performance_mode:failed',
      meta: { part: 'performance_mode', detail: 'the stored setting could not be read; the built-in default applies' },
      entry: 'countAttempt',
      after: { rereadBackoff: 'reading' },
    },
    choosing: { always: [{ guard: 'isEnabled', target: 'enabled' }, { target: 'disabled' }] },
    enabled: {
      tags: 'performance_mode:ready',
      meta: { part: 'performance_mode', detail: 'audit findings and wiretap are available' },
      ...writable,
    },
    disabled: {
      tags: 'performance_mode:disabled',
      meta: { part: 'performance_mode', detail: 'audit findings and wiretap return 503' },
      ...writable,
    },
  },
});

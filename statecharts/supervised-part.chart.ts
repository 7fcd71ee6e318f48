import { assign, type EventObject, fromCallback, fromPromise, setup } from 'xstate';
import { backoffMs } from '#contracts/backoff.js';
import { notProvided, sentenceOf } from './failure.js';

export type SupervisedPartInput = {
  /**
   * Whether this chart starts the part. False for a part that starts by itself when it is used for the first
   * time.
   */
  readonly startsAtOnce: boolean;
};
export type SupervisedPartContext = SupervisedPartInput & {
  /** The message of the latest error of the part; null before the first error. */
  readonly failure: string | null;
  readonly attempts: number;
};
/** The events `part.failed` and `part.recovered`, which the part of the node sends. */
export type SupervisedPartEvent =
  | { readonly type: 'part.failed'; readonly reason: string }
  | { readonly type: 'part.recovered' };

const noteError = {
  type: 'noteFailure',
  params: ({ event }: { event: { readonly error: unknown } }) => ({ reason: sentenceOf(event.error) }),
} as const;

/**
 * The chart of a part that has no chart of its own: a thread, or a file that the node follows. After a
 * failure, the chart starts the part again, with a back-off.
 */
export const supervisedPartChart = setup({
  types: {
    context: {} as SupervisedPartContext,
    input: {} as SupervisedPartInput,
    events: {} as SupervisedPartEvent,
  },
  actors: {
    /** Starts the part. Resolves when the part runs. */
    start: fromPromise<void>(notProvided('start')),
    watch: fromCallback<EventObject>(notProvided('watch')),
  },
  actions: {
    noteFailure: assign((_, { reason }: { reason: string }) => ({ failure: reason })),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    resetAttempts: assign({ attempts: 0 }),
  },
  guards: { startsAtOnce: ({ context }) => context.startsAtOnce },
  delays: {
    backoff: ({ context }) => backoffMs(context.attempts - 1, 1_000, 30_000),
    quietTime: 60_000,
  },
}).createMachine({
  id: 'supervisedPart',
  context: ({ input }) => ({ ...input, failure: null, attempts: 0 }),
  initial: 'choosing',
  invoke: { id: 'watch', src: 'watch', onError: { target: '.down', actions: noteError } },
  on: {
    'part.failed': { target: '.down', actions: { type: 'noteFailure', params: ({ event }) => event } },
  },
  states: {
    choosing: { always: [{ guard: 'startsAtOnce', target: 'starting' }, { target: 'up' }] },
    starting: {
      invoke: { id: 'start', src: 'start', onDone: 'up', onError: { target: 'down', actions: noteError } },
    },
    up: { after: { quietTime: { actions: 'resetAttempts' } } },
    down: {
      initial: 'backing_off',
      on: { 'part.recovered': 'up' },
      states: {
        backing_off: { entry: 'countAttempt', after: { backoff: 'restarting' } },
        restarting: {
          invoke: {
            id: 'restart',
            src: 'start',
            onDone: '#supervisedPart.up',
            onError: { target: 'backing_off', actions: noteError },
          },
        },
      },
    },
  },
});

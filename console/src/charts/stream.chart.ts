import { assign, fromCallback, fromPromise, setup } from 'xstate';
import { chartTypes } from './chart-types.js';

/**
 * The reason why the node does not open a stream. `none`: the node gives no reason. `no_replay`: the node
 * keeps no past messages, so a stream can only start at the present time.
 */
export type Hindrance =
  | { readonly kind: 'none' | 'switched_off' | 'no_replay' }
  | { readonly kind: 'refused'; readonly reason: string };

type Context = {
  /** Whether the next connection may request past messages. */
  readonly replays: boolean;
  /** The duration of the next wait before a reconnection, in milliseconds. */
  readonly waitMs: number;
  /** When the present wait ends, in milliseconds since 1970; null while the stream does not wait. */
  readonly retryAt: number | null;
  /** The close code and the reason of the last connection. */
  readonly closed: { readonly code: number; readonly reason: string } | null;
  /** The reason why the node refuses the query of the stream; null if the node does not refuse it. */
  readonly refusal: string | null;
};

export type StreamEvent =
  | { readonly type: 'opened' }
  /** `code` is the close code of the WebSocket: 1006 if the connection could not be opened or broke. */
  | { readonly type: 'closed'; readonly code: number; readonly reason: string }
  /** Connects at once instead of at the end of the wait, or after performance mode was enabled. */
  | { readonly type: 'again' };

export type ConnectionInput = { readonly replays: boolean };

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
/** Performance mode is disabled: the node sends no events. */
const SWITCHED_OFF = 4503;
/** The token of the session was revoked or has expired. */
const TOKEN_ENDED = 4401;

/**
 * A stream of messages from the node over a WebSocket. The page reconnects after a lost connection: after 250
 * ms at first, later after up to 10 s. The messages do not pass through this statechart: the connection gives
 * them to the page directly.
 */
export const streamChart = setup({
  types: chartTypes<Context, StreamEvent>(),
  actors: {
    connection: fromCallback<StreamEvent, ConnectionInput>(() => {}),
    /**
     * Requests the reason why the node refuses the WebSocket: a browser does not show the response to a page.
     */
    findHindrance: fromPromise<Hindrance, ConnectionInput>(async () => ({ kind: 'none' })),
    /** A promise that resolves when performance mode is enabled. */
    untilSwitchedOn: fromPromise<void>(() => new Promise(() => {})),
  },
  actions: {
    noteClose: assign(({ event }) => (event.type === 'closed' ? { closed: event } : {})),
    beginWait: assign({ retryAt: ({ context }) => Date.now() + context.waitMs }),
    endWait: assign({
      retryAt: null,
      waitMs: ({ context }) => Math.min(LONGEST_WAIT_MS, context.waitMs * 2),
    }),
    forgetWait: assign({ waitMs: FIRST_WAIT_MS, closed: null, replays: false }),
    noteRefusal: assign((_, { hindrance }: { hindrance: Hindrance }) => ({
      refusal: hindrance.kind === 'refused' ? hindrance.reason : null,
    })),
    tellSession: () => {},
  },
  guards: {
    isSwitchedOff: ({ event }) => event.type === 'closed' && event.code === SWITCHED_OFF,
    isTokenEnded: ({ event }) => event.type === 'closed' && event.code === TOKEN_ENDED,
    is: (_, { found, kind }: { found: Hindrance; kind: Hindrance['kind'] }) => found.kind === kind,
  },
  delays: { wait: ({ context }) => context.waitMs },
}).createMachine({
  id: 'stream',
  context: { replays: true, waitMs: FIRST_WAIT_MS, retryAt: null, closed: null, refusal: null },
  initial: 'open',
  states: {
    open: {
      invoke: { src: 'connection', input: ({ context: { replays } }) => ({ replays }) },
      on: {
        closed: [
          { guard: 'isSwitchedOff', target: 'switched_off', actions: 'noteClose' },
          { guard: 'isTokenEnded', target: 'token_ended', actions: 'noteClose' },
          { target: 'waiting', actions: 'noteClose' },
        ],
      },
      initial: 'connecting',
      states: {
        connecting: { on: { opened: 'live' } },
        live: { entry: 'forgetWait' },
      },
    },
    waiting: {
      entry: 'beginWait',
      exit: 'endWait',
      invoke: {
        src: 'findHindrance',
        input: ({ context: { replays } }) => ({ replays }),
        onDone: [
          {
            guard: { type: 'is', params: ({ event }) => ({ found: event.output, kind: 'switched_off' }) },
            target: 'switched_off',
          },
          {
            guard: { type: 'is', params: ({ event }) => ({ found: event.output, kind: 'refused' }) },
            target: 'refused',
            actions: { type: 'noteRefusal', params: ({ event }) => ({ hindrance: event.output }) },
          },
          {
            guard: { type: 'is', params: ({ event }) => ({ found: event.output, kind: 'no_replay' }) },
            target: 'open',
            actions: assign({ replays: false }),
          },
        ],
        // The node does not respond either: wait as after any lost connection.
        onError: {},
      },
      after: { wait: 'open' },
      on: { again: 'open' },
    },
    switched_off: {
      invoke: { src: 'untilSwitchedOn', onDone: 'open', onError: 'waiting' },
      on: { again: 'open' },
    },
    /** The node refuses the query as invalid. The stream opens only after the query changes. */
    refused: {},
    token_ended: { entry: 'tellSession' },
  },
});

import { assign, fromCallback, fromPromise, setup } from 'xstate';
import { chartTypes } from './chart-types.js';

/**
 * Why the node does not open a stream. `none`: nothing that the node names. `no_replay`: it keeps no
 * messages of the past.
 */
export type Hindrance =
  | { readonly kind: 'none' | 'switched_off' | 'no_replay' }
  | { readonly kind: 'refused'; readonly reason: string };

type Context = {
  /** Whether the next connection may begin with messages of the past. */
  readonly replays: boolean;
  /** How long the next wait lasts, in milliseconds. */
  readonly waitMs: number;
  /** When the present wait ends, in milliseconds since 1970; null while the stream does not wait. */
  readonly retryAt: number | null;
  /** The close code and the reason of the last connection. */
  readonly closed: { readonly code: number; readonly reason: string } | null;
  /** Why the node refuses the query of the stream; null otherwise. */
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
 * A stream of the node over a WebSocket. A lost connection is opened again, after 250 ms at first, and at
 * most 10 s. The messages do not pass through this chart: the connection hands them to the page.
 */
export const streamChart = setup({
  types: chartTypes<Context, StreamEvent>(),
  actors: {
    connection: fromCallback<StreamEvent, ConnectionInput>(() => {}),
    /** A browser does not show the response to a refused WebSocket, so the page asks for it. */
    findHindrance: fromPromise<Hindrance, ConnectionInput>(async () => ({ kind: 'none' })),
    /** Ends when performance mode is enabled. */
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
        // The node does not respond: the wait ends as usual.
        onError: {},
      },
      after: { wait: 'open' },
      on: { again: 'open' },
    },
    switched_off: {
      invoke: { src: 'untilSwitchedOn', onDone: 'open', onError: 'waiting' },
      on: { again: 'open' },
    },
    /** The query is faulty: only another one can help. */
    refused: {},
    token_ended: { entry: 'tellSession' },
  },
});

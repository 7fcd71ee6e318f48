import { assign, fromPromise, setup } from 'xstate';
import { chartTypes } from './chart-types.js';

/** The session of the signed-in user. `role`: `admin` may change the node, `readonly` may only read. */
export type Session = {
  readonly subject: string;
  readonly role: 'admin' | 'readonly';
  readonly expires_at: string;
  /** The id of the node for which the session is valid. */
  readonly node: string;
};

/** A token, or the one-time code of a link of `weir console`. */
export type Credentials = { readonly token: string } | { readonly code: string };

type Context = {
  readonly session: Session | null;
  readonly credentials: Credentials | null;
  readonly reason: string | null;
};
type Event =
  | { readonly type: 'sign_in'; readonly credentials: Credentials }
  | { readonly type: 'sign_out' }
  | { readonly type: 'refused' };

const RETRY_MS = 2_000;
const ENDED = 'The session has ended: its token was revoked or has expired.';
const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
const notProvided = () => Promise.reject(new Error('the session chart has no implementation of this actor'));

/** The session of the console: whether this browser is signed in at the node. */
export const sessionChart = setup({
  types: chartTypes<Context, Event, { readonly credentials: Credentials | null }>(),
  actors: {
    look: fromPromise<Session | null>(notProvided),
    signIn: fromPromise<Session, Credentials | null>(notProvided),
    signOut: fromPromise<void>(notProvided),
  },
  actions: {
    noteSession: assign((_, { session }: { session: Session | null }) => ({
      session,
      credentials: null,
      reason: null,
    })),
    noteReason: assign((_, { reason }: { reason: string }) => ({ session: null, credentials: null, reason })),
  },
}).createMachine({
  id: 'session',
  context: ({ input }) => ({ session: null, credentials: input.credentials, reason: null }),
  initial: 'choosing',
  states: {
    choosing: {
      always: [{ guard: ({ context }) => context.credentials !== null, target: 'signing_in' }, { target: 'looking' }],
    },
    looking: {
      invoke: {
        src: 'look',
        onDone: [
          {
            guard: ({ event }) => event.output !== null,
            target: 'signed_in',
            actions: { type: 'noteSession', params: ({ event }) => ({ session: event.output }) },
          },
          { target: 'signed_out' },
        ],
        onError: {
          target: 'no_response',
          actions: { type: 'noteReason', params: ({ event }) => ({ reason: messageOf(event.error) }) },
        },
      },
    },
    no_response: { after: { [RETRY_MS]: 'looking' } },
    signed_out: {
      on: { sign_in: { target: 'signing_in', actions: assign({ credentials: ({ event }) => event.credentials }) } },
    },
    signing_in: {
      invoke: {
        src: 'signIn',
        input: ({ context }) => context.credentials,
        onDone: {
          target: 'signed_in',
          actions: { type: 'noteSession', params: ({ event }) => ({ session: event.output }) },
        },
        onError: {
          target: 'signed_out',
          actions: { type: 'noteReason', params: ({ event }) => ({ reason: messageOf(event.error) }) },
        },
      },
    },
    signed_in: {
      on: {
        sign_out: { target: 'signing_out', actions: assign({ reason: null }) },
        refused: { target: 'signed_out', actions: { type: 'noteReason', params: { reason: ENDED } } },
      },
    },
    signing_out: {
      invoke: {
        src: 'signOut',
        onDone: { target: 'signed_out', actions: { type: 'noteSession', params: { session: null } } },
        // Stay signed in: the cookie is still valid, so the page must not look as if the session had ended.
        onError: {
          target: 'signed_in',
          actions: assign({ reason: ({ event }) => `Not signed out: ${messageOf(event.error)}.` }),
        },
      },
    },
  },
});

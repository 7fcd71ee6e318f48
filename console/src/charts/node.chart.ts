import { assign, fromPromise, setup } from 'xstate';
import type { Schemas } from '../api/client.js';
import { chartTypes } from './chart-types.js';

/** The state of the node that each page shows in its status bar. */
export type NodeReport = {
  readonly readiness: Schemas['Readiness'];
  readonly stats: Schemas['Stats'];
  readonly pending: Schemas['PendingChange'];
};

type Context = {
  readonly report: NodeReport | null;
  readonly reportedAt: number | null;
  readonly failure: string | null;
};

/** The page reports that the node is silent if the node has not responded for this time. */
export const SILENT_AFTER_MS = 3_000;
const POLL_MS = 1_500;
const RETRY_MS = 750;

/**
 * Requests the state of the node repeatedly while a user is signed in. In the state `silent`, the node does
 * not respond, so the data on the page can be old.
 */
export const nodeChart = setup({
  types: chartTypes<Context, { readonly type: 'changed' | 'signed_in' | 'signed_out' }>(),
  actors: {
    ask: fromPromise<NodeReport>(() => Promise.reject(new Error('not provided'))),
  },
}).createMachine({
  id: 'node',
  context: { report: null, reportedAt: null, failure: null },
  initial: 'off',
  on: { signed_out: '.off' },
  states: {
    off: { on: { signed_in: 'responding' } },
    responding: {
      initial: 'asking',
      states: {
        asking: {
          invoke: {
            src: 'ask',
            onDone: {
              target: 'waiting',
              actions: assign({ report: ({ event }) => event.output, reportedAt: () => Date.now(), failure: null }),
            },
            onError: { target: '#node.silent', actions: assign({ failure: ({ event }) => String(event.error) }) },
          },
        },
        waiting: { after: { [POLL_MS]: 'asking' }, on: { changed: 'asking' } },
      },
    },
    silent: {
      initial: 'waiting',
      states: {
        waiting: { after: { [RETRY_MS]: 'asking' } },
        asking: {
          invoke: {
            src: 'ask',
            onDone: {
              target: '#node.responding.waiting',
              actions: assign({ report: ({ event }) => event.output, reportedAt: () => Date.now(), failure: null }),
            },
            onError: 'waiting',
          },
        },
      },
    },
  },
});

import { assign, type EventObject, fromCallback, fromPromise, setup } from 'xstate';
import type { Fact, Needs } from '#bus/messages.js';
import type { InspectionImage } from '#policy/inspection.js';
import { backoffMs, notProvided, sentenceOf } from './failure.js';
import type { ReadinessMeta, ReadinessTag, Troubles } from './readiness.js';

export type ServicePlaneInput = {
  readonly configured: boolean;
  readonly needed: boolean;
  /** Whether the configuration has a dataplane: what is granted can be asked only then. */
  readonly enforced: boolean;
  /** What is in force; null before the first policy. */
  readonly inspection: InspectionImage | null;
};
export type ServicePlaneContext = ServicePlaneInput & {
  readonly isEnforcing: boolean;
  readonly hasGrants: boolean;
  readonly hasCa: boolean;
  readonly attempts: number;
  readonly trouble: Troubles;
};
export type ServicePlaneEvent =
  | Extract<Fact, { type: 'policy.activated' | 'dataplane.enforcing' | 'dataplane.lost' | 'dataplane.closed' }>
  | { readonly type: 'service_plane.died'; readonly reason: string }
  | { readonly type: 'service_plane.ca_changed'; readonly hasCa: boolean; readonly fault: string | null };

const part = 'service_plane';
const isNeeded = {
  type: 'isNeeded' as const,
  params: ({ event }: { event: { readonly needs: Needs } }) => ({ needs: event.needs }),
};

export const servicePlaneChart = setup({
  types: {
    context: {} as ServicePlaneContext,
    input: {} as ServicePlaneInput,
    events: {} as ServicePlaneEvent,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  actors: {
    /** Begins its threads, and listens; what served before is closed. */
    open: fromPromise<void>(notProvided('open')),
    /** Has the threads ask the datapath what is granted. */
    connectGrants: fromPromise<void>(notProvided('connectGrants')),
    watch: fromCallback<EventObject>(notProvided('watch')),
    /** Hands over the intercept CA, now and when it changes. */
    watchCa: fromCallback<EventObject>(notProvided('watchCa')),
  },
  actions: {
    use: (_, _params: { inspection: InspectionImage | null }) => {},
    noteInspection: assign((_, params: { inspection: InspectionImage }) => ({ inspection: params.inspection })),
    noteEnforcing: assign({ isEnforcing: true }),
    noteLost: assign({ isEnforcing: false, hasGrants: false }),
    noteGrants: assign({ hasGrants: true }),
    noteCa: assign((_, params: { hasCa: boolean; fault: string | null }) => ({
      hasCa: params.hasCa,
      trouble: params.fault === null ? {} : { service_plane: params.fault },
    })),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { service_plane: params.trouble } })),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    forgetTrouble: assign({ trouble: {}, attempts: 0 }),
    forgetPlane: assign({ hasGrants: false }),
  },
  guards: {
    isConfigured: ({ context }) => context.configured,
    isNeededFromTheStart: ({ context }) => context.needed,
    isNeeded: (_, params: { needs: Needs }) => params.needs.servicePlane,
    isNotNeeded: (_, params: { needs: Needs }) => !params.needs.servicePlane,
    hasNoPolicy: ({ context }) => context.inspection === null,
    mayConnect: ({ context }) => context.enforced && context.isEnforcing && !context.hasGrants,
    cannotAsk: ({ context }) => context.enforced && !context.hasGrants,
    lacksCa: ({ context }) => context.inspection?.intercepts === true && !context.hasCa,
  },
  delays: {
    backoff: ({ context }) => backoffMs(context.attempts - 1, 200, 30_000),
    reconnect: 500,
  },
}).createMachine({
  id: 'servicePlane',
  context: ({ input }) => ({
    ...input,
    // One that is started again has missed who said so.
    isEnforcing: input.inspection !== null,
    hasGrants: false,
    hasCa: false,
    attempts: 0,
    trouble: {},
  }),
  initial: 'choosing',
  on: {
    'dataplane.enforcing': { actions: 'noteEnforcing' },
    'dataplane.lost': { actions: 'noteLost' },
    'dataplane.closed': { actions: 'noteLost' },
  },
  states: {
    choosing: {
      always: [
        { guard: 'isConfigured', target: 'running' },
        { guard: 'isNeededFromTheStart', target: 'needed_but_absent' },
        { target: 'disabled' },
      ],
    },
    disabled: {
      tags: `${part}:disabled`,
      meta: { part, detail: 'not configured, and the active policy does not need it' },
      on: { 'policy.activated': { guard: isNeeded, target: 'needed_but_absent' } },
    },
    needed_but_absent: {
      tags: `${part}:needed_but_absent`,
      meta: { part, detail: 'the active policy needs it: connections that reach a TLS rule fail' },
      on: { 'policy.activated': { guard: { ...isNeeded, type: 'isNotNeeded' }, target: 'disabled' } },
    },
    running: {
      initial: 'binding',
      invoke: {
        id: 'watchCa',
        src: 'watchCa',
        onError: {
          target: '.backing_off',
          actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
        },
      },
      on: {
        'policy.activated': {
          actions: [
            { type: 'noteInspection', params: ({ event }) => event },
            { type: 'use', params: ({ event }) => event },
          ],
        },
        'service_plane.ca_changed': { actions: { type: 'noteCa', params: ({ event }) => event } },
      },
      states: {
        binding: {
          tags: `${part}:starting`,
          meta: { part, detail: 'starting its threads' },
          entry: 'forgetPlane',
          invoke: {
            id: 'open',
            src: 'open',
            onDone: {
              target: 'serving',
              actions: ['forgetTrouble', { type: 'use', params: ({ context }) => context }],
            },
            onError: {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
        },
        backing_off: {
          tags: `${part}:failed`,
          meta: { part, detail: 'not listening: connections that reach a TLS rule fail; tried again soon' },
          entry: 'countAttempt',
          after: { backoff: 'binding' },
        },
        serving: {
          initial: 'judging',
          invoke: {
            id: 'watch',
            src: 'watch',
            onError: {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
          on: {
            'service_plane.died': {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: event.reason }) },
            },
            'policy.activated': {
              target: '.judging',
              actions: [
                { type: 'noteInspection', params: ({ event }) => event },
                { type: 'use', params: ({ event }) => event },
              ],
            },
            'service_plane.ca_changed': {
              target: '.judging',
              actions: { type: 'noteCa', params: ({ event }) => event },
            },
            'dataplane.enforcing': { target: '.judging', actions: 'noteEnforcing' },
            'dataplane.lost': { target: '.judging', actions: 'noteLost' },
            'dataplane.closed': { target: '.judging', actions: 'noteLost' },
          },
          states: {
            judging: {
              always: [
                { guard: 'hasNoPolicy', target: 'awaiting_policy' },
                { guard: 'mayConnect', target: 'connecting' },
                { guard: 'cannotAsk', target: 'awaiting_dataplane' },
                { guard: 'lacksCa', target: 'without_ca' },
                { target: 'inspecting' },
              ],
            },
            awaiting_policy: {
              tags: `${part}:starting`,
              meta: { part, detail: 'no policy is in force yet: every connection is reset' },
            },
            connecting: {
              tags: `${part}:starting`,
              meta: {
                part,
                detail: 'what names are granted is not in reach yet: of rules with a hostname only denies match',
              },
              invoke: {
                id: 'connectGrants',
                src: 'connectGrants',
                onDone: { target: 'judging', actions: 'noteGrants' },
                onError: {
                  target: 'disconnected',
                  actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
                },
              },
            },
            disconnected: {
              tags: `${part}:failed`,
              meta: {
                part,
                detail: 'what names are granted is not in reach: of rules with a hostname only denies match',
              },
              after: { reconnect: 'judging' },
            },
            awaiting_dataplane: {
              tags: `${part}:starting`,
              meta: { part, detail: 'the dataplane does not enforce: no connection is redirected' },
            },
            without_ca: {
              tags: `${part}:failed`,
              meta: { part, detail: 'there is no intercept CA: connections that a rule intercepts are reset' },
            },
            inspecting: {
              tags: `${part}:ready`,
              meta: { part, detail: 'connections that reach a TLS rule are judged by what they say' },
            },
          },
        },
      },
    },
  },
});

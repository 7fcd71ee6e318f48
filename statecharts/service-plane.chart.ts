import { assign, type EventObject, fromCallback, fromPromise, setup } from 'xstate';
import type { Fact, Needs } from '#bus/messages.js';
import type { InspectionImage } from '#contracts/inspection.js';
import { backoffMs, notProvided } from './failure.js';
import {
  absentStates,
  beginningStates,
  lacksAddress,
  noteFailure,
  ON_DATAPLANE,
  ON_DATAPLANE_SERVING,
  statesWithoutGrants,
  WITHOUT_GRANTS,
} from './granted-part.js';
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
  /** Of the intercept CA, and of the authorities that servers must be signed by. */
  readonly caFault: string | null;
  readonly upstreamCaFault: string | null;
  /** What keeps connections from being left to the datapath. */
  readonly joinFault: string | null;
  readonly attempts: number;
  readonly trouble: Troubles;
};
export type ServicePlaneEvent =
  | Extract<Fact, { type: 'policy.activated' | 'dataplane.enforcing' | 'dataplane.lost' | 'dataplane.closed' }>
  | { readonly type: 'service_plane.died'; readonly reason: string }
  | { readonly type: 'service_plane.ca_changed'; readonly hasCa: boolean; readonly fault: string | null }
  | {
      readonly type: 'service_plane.upstream_ca_changed' | 'service_plane.joining_changed';
      readonly fault: string | null;
    };

const part = 'service_plane';
const use = { type: 'use', params: ({ context }: { context: ServicePlaneContext }) => context } as const;

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
    /** Resolves once an address or a link of the node has changed. */
    addressChange: fromPromise<void>(notProvided('addressChange')),
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
      caFault: params.fault,
    })),
    nameCaFault: assign(({ context }) => ({
      trouble: context.caFault === null ? {} : { service_plane: context.caFault },
    })),
    noteUpstreamCa: assign((_, params: { fault: string | null }) => ({ upstreamCaFault: params.fault })),
    noteJoining: assign((_, params: { fault: string | null }) => ({ joinFault: params.fault })),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { service_plane: params.trouble } })),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    forgetTrouble: assign({ trouble: {}, attempts: 0 }),
    forgetServed: assign({ hasGrants: false, upstreamCaFault: null, joinFault: null }),
  },
  guards: {
    isConfigured: ({ context }) => context.configured,
    lacksAddress: ({ context }) => lacksAddress(context.trouble, part),
    isNeededFromTheStart: ({ context }) => context.needed,
    isNeeded: (_, params: { needs: Needs }) => params.needs.servicePlane,
    isNotNeeded: (_, params: { needs: Needs }) => !params.needs.servicePlane,
    hasNoPolicy: ({ context }) => context.inspection === null,
    mayConnect: ({ context }) => context.enforced && context.isEnforcing && !context.hasGrants,
    lacksGrants: ({ context }) => context.enforced && !context.hasGrants,
    lacksCa: ({ context }) => context.inspection?.intercepts === true && !context.hasCa,
    hasOlderAuthorities: ({ context }) => context.upstreamCaFault !== null,
    cannotJoin: ({ context }) => context.joinFault !== null,
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
    caFault: null,
    upstreamCaFault: null,
    joinFault: null,
    attempts: 0,
    trouble: {},
  }),
  initial: 'choosing',
  on: ON_DATAPLANE,
  states: {
    ...absentStates(part, 'connections that reach a TLS rule fail'),
    running: {
      initial: 'binding',
      invoke: {
        id: 'watchCa',
        src: 'watchCa',
        onError: {
          target: '.backing_off',
          actions: noteFailure,
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
        ...beginningStates(part, {
          binding: 'starting its threads',
          failed: 'not listening: connections that reach a TLS rule fail; tried again soon',
          use,
        }),
        serving: {
          initial: 'judging',
          invoke: {
            id: 'watch',
            src: 'watch',
            onError: {
              target: 'backing_off',
              actions: noteFailure,
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
            'service_plane.upstream_ca_changed': {
              target: '.judging',
              actions: { type: 'noteUpstreamCa', params: ({ event }) => event },
            },
            'service_plane.joining_changed': {
              target: '.judging',
              actions: { type: 'noteJoining', params: ({ event }) => event },
            },
            ...ON_DATAPLANE_SERVING,
          },
          states: {
            judging: {
              always: [
                ...WITHOUT_GRANTS,
                { guard: 'lacksCa', target: 'without_ca', actions: 'nameCaFault' },
                { guard: 'hasOlderAuthorities', target: 'inspecting_by_older_authorities' },
                { guard: 'cannotJoin', target: 'inspecting_without_joining' },
                { target: 'inspecting' },
              ],
            },
            ...statesWithoutGrants(part, {
              awaitingPolicy: 'no policy is in force yet: every connection is reset',
              connecting: 'what names are granted is not in reach yet: of rules with a hostname only denies match',
              disconnected: 'what names are granted is not in reach: of rules with a hostname only denies match',
              awaitingDataplane: 'the dataplane does not enforce: no connection is redirected',
            }),
            without_ca: {
              tags: `${part}:failed`,
              meta: { part, detail: 'there is no intercept CA: connections that a rule intercepts are reset' },
            },
            inspecting_by_older_authorities: {
              tags: `${part}:ready`,
              meta: {
                part,
                detail:
                  'connections that reach a TLS rule are judged by what they say; upstream_ca cannot be read now, and servers are verified by what it held before',
              },
            },
            inspecting_without_joining: {
              tags: `${part}:ready`,
              meta: {
                part,
                detail:
                  'connections that reach a TLS rule are judged by what they say; none can be left to the datapath, join_fault in the stats says why',
              },
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

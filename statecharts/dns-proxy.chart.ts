import { assign, type EventObject, fromCallback, fromPromise, setup } from 'xstate';
import type { Fact, Needs } from '#bus/messages.js';
import type { Lookups } from '#contracts/lookups.js';
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

export type DnsProxyInput = {
  readonly configured: boolean;
  /** Whether the policy in force has rules by hostname. */
  readonly needed: boolean;
  /** Whether there is a dataplane, by which addresses are learned. */
  readonly enforced: boolean;
  /** Of the policy in force; null before the first. */
  readonly lookups: Lookups | null;
};
type DnsProxyContext = DnsProxyInput & {
  readonly isEnforcing: boolean;
  readonly hasGrants: boolean;
  /** Upstreams of which none answers of late; null until that is known. */
  readonly upstreams: { readonly alive: readonly string[]; readonly dead: readonly string[] } | null;
  readonly attempts: number;
  readonly trouble: Troubles;
};
type DnsProxyEvent =
  | Extract<Fact, { type: 'policy.activated' | 'dataplane.enforcing' | 'dataplane.lost' | 'dataplane.closed' }>
  /** Sent by the proxy. */
  | { readonly type: 'dns.upstreams_changed'; readonly alive: readonly string[]; readonly dead: readonly string[] }
  | { readonly type: 'dns.died'; readonly reason: string };

const part = 'dns_allowlist';
const use = { type: 'use', params: ({ context }: { context: DnsProxyContext }) => context } as const;

export const dnsProxyChart = setup({
  types: {
    context: {} as DnsProxyContext,
    input: {} as DnsProxyInput,
    events: {} as DnsProxyEvent,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  actors: {
    /** Binds the sockets; what served before is closed. */
    open: fromPromise<void>(notProvided('open')),
    /** Has the proxy learn addresses by the datapath. */
    connectGrants: fromPromise<void>(notProvided('connectGrants')),
    /** Resolves once an address or a link of the node has changed. */
    addressChange: fromPromise<void>(notProvided('addressChange')),
    watch: fromCallback<EventObject>(notProvided('watch')),
  },
  actions: {
    use: (_, _params: { lookups: Lookups | null }) => {},
    noteLookups: assign((_, params: { lookups: Lookups }) => ({ lookups: params.lookups })),
    noteEnforcing: assign({ isEnforcing: true }),
    noteLost: assign({ isEnforcing: false, hasGrants: false }),
    noteGrants: assign({ hasGrants: true }),
    noteUpstreams: assign((_, params: { alive: readonly string[]; dead: readonly string[] }) => ({
      upstreams: { alive: params.alive, dead: params.dead },
    })),
    nameUpstreams: assign(({ context }) => ({
      trouble: { dns_allowlist: (context.upstreams?.dead ?? []).join(', ') },
    })),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { dns_allowlist: params.trouble } })),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    forgetTrouble: assign({ trouble: {}, attempts: 0 }),
    forgetServed: assign({ hasGrants: false, upstreams: null }),
  },
  guards: {
    isConfigured: ({ context }) => context.configured,
    lacksAddress: ({ context }) => lacksAddress(context.trouble, part),
    isNeededFromTheStart: ({ context }) => context.needed,
    isNeeded: (_, params: { needs: Needs }) => params.needs.dns,
    isNotNeeded: (_, params: { needs: Needs }) => !params.needs.dns,
    hasNoPolicy: ({ context }) => context.lookups === null,
    mayConnect: ({ context }) => context.enforced && context.isEnforcing && !context.hasGrants,
    lacksGrants: ({ context }) => context.enforced && !context.hasGrants,
    hasNoUpstream: ({ context }) => context.upstreams !== null && context.upstreams.alive.length === 0,
  },
  delays: {
    backoff: ({ context }) => backoffMs(context.attempts - 1, 200, 30_000),
    reconnect: 500,
  },
}).createMachine({
  id: 'dnsProxy',
  context: ({ input }) => ({
    ...input,
    // One that is started again has missed who said so.
    isEnforcing: input.lookups !== null,
    hasGrants: false,
    upstreams: null,
    attempts: 0,
    trouble: {},
  }),
  initial: 'choosing',
  on: ON_DATAPLANE,
  states: {
    ...absentStates(part, 'hostname rules match nothing, since no address is learned'),
    running: {
      initial: 'binding',
      on: {
        'policy.activated': {
          actions: [
            { type: 'noteLookups', params: ({ event }) => event },
            { type: 'use', params: ({ event }) => event },
          ],
        },
      },
      states: {
        ...beginningStates(part, {
          binding: 'binding its sockets',
          failed: 'not listening; tried again soon',
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
            'dns.died': {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: event.reason }) },
            },
            'policy.activated': {
              target: '.judging',
              actions: [
                { type: 'noteLookups', params: ({ event }) => event },
                { type: 'use', params: ({ event }) => event },
              ],
            },
            ...ON_DATAPLANE_SERVING,
            'dns.upstreams_changed': {
              target: '.judging',
              actions: { type: 'noteUpstreams', params: ({ event }) => event },
            },
          },
          states: {
            judging: {
              always: [
                ...WITHOUT_GRANTS,
                { guard: 'hasNoUpstream', target: 'without_upstreams', actions: 'nameUpstreams' },
                { target: 'answering', actions: 'forgetTrouble' },
              ],
            },
            ...statesWithoutGrants(part, {
              awaitingPolicy: 'no policy is in force yet: every lookup fails',
              connecting: 'learned addresses are not in reach yet: lookups that bring some fail',
              disconnected: 'learned addresses are not in reach: lookups that bring some fail',
              awaitingDataplane: 'the dataplane does not enforce: lookups that bring addresses fail',
            }),
            without_upstreams: {
              tags: `${part}:degraded`,
              meta: { part, detail: 'no upstream answers; what is kept is still answered' },
            },
            answering: {
              tags: `${part}:ready`,
              meta: { part, detail: 'lookups are judged, and what they bring is learned' },
            },
          },
        },
      },
    },
  },
});

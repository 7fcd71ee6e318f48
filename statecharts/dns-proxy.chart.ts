import { assign, setup } from 'xstate';
import type { RequestMessage } from '#bus/bus-messages.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import {
  GRANTED_ACTORS,
  GRANTED_DELAYS,
  GRANTED_GUARDS,
  type GrantedContext,
  type GrantedEvent,
  type GrantedInput,
  grantedActions,
  grantedStates,
  initialContext,
  type PolicyActivated,
} from './granted-part.js';
import { readinessTypes, reports } from './readiness.js';

export type DnsProxyInput = GrantedInput & {
  /**
   * The tables with which the DNS proxy decides lookups by the policy in force; null before the first policy.
   */
  readonly lookups: Lookups | null;
};
type Upstreams = { readonly alive: readonly string[]; readonly dead: readonly string[] };
type DnsProxyContext = DnsProxyInput &
  GrantedContext & {
    /**
     * The upstream DNS servers that reply, and those that do not reply; null until the DNS proxy has sent
     * `dns.upstreams_changed`.
     */
    readonly upstreams: Upstreams | null;
  };
/**
 * The DNS proxy sends `dns.upstreams_changed` when an upstream DNS server begins or ceases to reply. The
 * event lists the servers that reply and those that do not.
 */
type UpstreamsChanged = { readonly type: 'dns.upstreams_changed' } & Upstreams;
type DnsProxyEvent =
  | GrantedEvent
  | UpstreamsChanged
  | RequestMessage<'dns.change'>
  | { readonly type: 'dns.died'; readonly reason: string };

const part = 'dns_allowlist';

export const dnsProxyChart = setup({
  types: readinessTypes<DnsProxyContext, DnsProxyInput, DnsProxyEvent>(),
  actors: GRANTED_ACTORS,
  actions: {
    ...grantedActions<DnsProxyContext, DnsProxyEvent>(part),
    use: (_, _params: { lookups: Lookups | null }) => {},
    noteLookups: assign((_, params: { lookups: Lookups }) => ({ lookups: params.lookups })),
    noteUpstreams: assign((_, { alive, dead }: Upstreams) => ({ upstreams: { alive, dead } })),
    nameUpstreams: assign(({ context }) => ({ trouble: { [part]: (context.upstreams?.dead ?? []).join(', ') } })),
    forgetServed: assign({ hasGrants: false, upstreams: null }),
  },
  guards: {
    ...GRANTED_GUARDS,
    hasNoPolicy: ({ context }) => context.lookups === null,
    hasNoUpstream: ({ context }) => context.upstreams !== null && context.upstreams.alive.length === 0,
  },
  delays: GRANTED_DELAYS,
}).createMachine({
  id: 'dnsProxy',
  context: ({ input }) => ({ ...initialContext(input, input.lookups !== null), upstreams: null }),
  initial: 'choosing',
  states: grantedStates({
    part,
    need: 'dns',
    details: {
      needed_but_absent:
        'not configured, but the active policy has hostname rules: they match nothing, because no address is learned',
      binding: 'binding its sockets',
      backing_off: 'not listening; the proxy tries again soon',
      awaiting_policy: 'no policy is active yet: every lookup fails',
      connecting: 'the grants in the kernel are not accessible yet: lookups whose addresses need grants fail',
      disconnected: 'the grants in the kernel are not accessible: lookups whose addresses need grants fail',
      awaiting_dataplane: 'the dataplane does not enforce: lookups whose addresses need grants fail',
    },
    notePolicy: { type: 'noteLookups', params: ({ event }: { event: PolicyActivated }) => event },
    use: { type: 'use', params: ({ context }: { context: DnsProxyContext }) => context },
    facts: {
      'dns.upstreams_changed': { type: 'noteUpstreams', params: ({ event }: { event: UpstreamsChanged }) => event },
    },
    died: 'dns.died',
    change: 'dns.change_requested',
    watching: [],
    deciding: [
      { guard: 'hasNoUpstream', target: 'without_upstreams', actions: 'nameUpstreams' },
      { target: 'answering', actions: 'forgetTrouble' },
    ],
    states: {
      without_upstreams: {
        ...reports(part, 'degraded', 'no upstream responds; the proxy serves answers from its cache'),
      },
      answering: {
        ...reports(part, 'ready', 'the proxy decides lookups and grants the addresses of allowed names'),
      },
    },
  }),
});

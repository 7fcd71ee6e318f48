import { assign, type EventObject, fromCallback, setup } from 'xstate';
import type { RequestMessage } from '#bus/bus-messages.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import { notProvided } from './failure.js';
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
  noteFailure,
  type PolicyActivated,
} from './granted-part.js';
import { readinessTypes, reports } from './readiness.js';

export type ServicePlaneInput = GrantedInput & {
  /**
   * The policy with which the service plane (TLS and HTTP inspection) decides connections; null before the
   * first policy.
   */
  readonly inspection: InspectionImage | null;
};
type Faults = {
  readonly hasCa: boolean;
  /**
   * `caFault`: why the intercept CA cannot be read. `upstreamCaFault`: why the CA certificates with which
   * server certificates are verified cannot be read. Null if there is no fault.
   */
  readonly caFault: string | null;
  readonly upstreamCaFault: string | null;
  /** Why the datapath cannot forward spliced connections itself (splicing offload); null if it can. */
  readonly spliceFault: string | null;
};
export type ServicePlaneContext = ServicePlaneInput & GrantedContext & Faults;

type CaChanged = {
  readonly type: 'service_plane.ca_changed';
  readonly hasCa: boolean;
  readonly fault: string | null;
};
type FaultChanged = {
  readonly type: 'service_plane.upstream_ca_changed' | 'service_plane.splice_fault_changed';
  readonly fault: string | null;
};
export type ServicePlaneEvent =
  | GrantedEvent
  | CaChanged
  | FaultChanged
  | RequestMessage<'service_plane.change'>
  | { readonly type: 'service_plane.died'; readonly reason: string };

const part = 'service_plane';

export const servicePlaneChart = setup({
  types: readinessTypes<ServicePlaneContext, ServicePlaneInput, ServicePlaneEvent>(),
  actors: {
    ...GRANTED_ACTORS,
    /**
     * Gives the intercept CA to the threads of the service plane, when this actor starts and after each
     * change of the CA.
     */
    watchCa: fromCallback<EventObject>(notProvided('watchCa')),
  },
  actions: {
    ...grantedActions<ServicePlaneContext, ServicePlaneEvent>(part),
    use: (_, _params: { inspection: InspectionImage | null }) => {},
    noteInspection: assign((_, params: { inspection: InspectionImage }) => ({ inspection: params.inspection })),
    noteCa: assign((_, params: { hasCa: boolean; fault: string | null }) => ({
      hasCa: params.hasCa,
      caFault: params.fault,
    })),
    nameCaFault: assign(({ context }) => ({
      trouble: context.caFault === null ? {} : { [part]: context.caFault },
    })),
    noteUpstreamCa: assign((_, params: { fault: string | null }) => ({ upstreamCaFault: params.fault })),
    noteSpliceFault: assign((_, params: { fault: string | null }) => ({ spliceFault: params.fault })),
    forgetServed: assign({ hasGrants: false, upstreamCaFault: null, spliceFault: null }),
  },
  guards: {
    ...GRANTED_GUARDS,
    hasNoPolicy: ({ context }) => context.inspection === null,
    lacksCa: ({ context }) => context.inspection?.intercepts === true && !context.hasCa,
    hasOlderAuthorities: ({ context }) => context.upstreamCaFault !== null,
    cannotOffload: ({ context }) => context.spliceFault !== null,
  },
  delays: GRANTED_DELAYS,
}).createMachine({
  id: 'servicePlane',
  context: ({ input }) => ({
    ...initialContext(input, input.inspection !== null),
    hasCa: false,
    caFault: null,
    upstreamCaFault: null,
    spliceFault: null,
  }),
  initial: 'choosing',
  states: grantedStates({
    part,
    need: 'servicePlane',
    details: {
      needed_but_absent: 'not configured, but the active policy has TLS rules: connections that match them fail',
      binding: 'starting its threads',
      backing_off: 'not listening: connections that match a TLS rule fail; the service plane tries again soon',
      awaiting_policy: 'no policy is active yet: every connection is reset',
      connecting: 'the grants of hostnames are not accessible yet: of rules with a hostname, only deny rules match',
      disconnected: 'the grants of hostnames are not accessible: of rules with a hostname, only deny rules match',
      awaiting_dataplane: 'the dataplane does not enforce: no connection is redirected',
    },
    notePolicy: { type: 'noteInspection', params: ({ event }: { event: PolicyActivated }) => event },
    use: { type: 'use', params: ({ context }: { context: ServicePlaneContext }) => context },
    facts: {
      'service_plane.ca_changed': { type: 'noteCa', params: ({ event }: { event: CaChanged }) => event },
      'service_plane.upstream_ca_changed': {
        type: 'noteUpstreamCa',
        params: ({ event }: { event: FaultChanged }) => event,
      },
      'service_plane.splice_fault_changed': {
        type: 'noteSpliceFault',
        params: ({ event }: { event: FaultChanged }) => event,
      },
    },
    died: 'service_plane.died',
    change: 'service_plane.change_requested',
    watching: [{ id: 'watchCa', src: 'watchCa', onError: { target: '.backing_off', actions: noteFailure } }],
    deciding: [
      { guard: 'lacksCa', target: 'without_ca', actions: 'nameCaFault' },
      { guard: 'hasOlderAuthorities', target: 'inspecting_by_older_authorities' },
      { guard: 'cannotOffload', target: 'inspecting_without_joining' },
      { target: 'inspecting' },
    ],
    states: {
      without_ca: {
        ...reports(
          part,
          'failed',
          'there is no intercept CA (`weir ca generate` makes one): connections that a rule intercepts are reset',
        ),
      },
      inspecting_by_older_authorities: {
        ...reports(
          part,
          'ready',
          'connections that match a TLS rule are inspected; upstream_ca cannot be read, and servers are verified with the certificates read before',
        ),
      },
      inspecting_without_joining: {
        ...reports(
          part,
          'ready',
          'connections that match a TLS rule are inspected; the datapath cannot forward spliced connections itself (splicing offload), so the node forwards them through its sockets; join_fault in the stats gives the reason',
        ),
      },
      inspecting: {
        ...reports(part, 'ready', 'connections that match a TLS rule are inspected'),
      },
    },
  }),
});

import { type AnyActorLogic, assign, fromPromise, setup } from 'xstate';
import type { Fact, Message, Needs } from '#bus/bus-messages.js';
import { backoffMs } from '#contracts/backoff.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import type { ClusterInput } from './cluster.chart.js';
import type { DataplaneInput } from './dataplane.setup.js';
import type { DnsProxyInput } from './dns-proxy.chart.js';
import { notProvided, sentenceOf } from './failure.js';
import type { PendingChangeInput } from './pending-change.chart.js';
import type { PolicyInput } from './policy.setup.js';
import { readinessTypes, reports, type Troubles } from './readiness.js';
import type { ServicePlaneInput } from './service-plane.chart.js';
import type { SupervisedPartInput } from './supervised-part.chart.js';

/**
 * The actors that the node chart supervises. Each name is both the id of a child actor and the name of a
 * region of this chart.
 */
export const PARTS = [
  'policy',
  'dataplane',
  'dnsProxy',
  'servicePlane',
  'cluster',
  'pendingChange',
  'performanceMode',
  'reload',
  'observer',
  'policyFile',
  'writeThread',
  'explainThread',
  'draftThread',
  'kubernetesThread',
  'integrations',
] as const;
export type Part = (typeof PARTS)[number];

export type NodeInput = {
  /** Which optional sections the configuration has. */
  readonly configured: {
    readonly dataplane: boolean;
    readonly dns: boolean;
    readonly servicePlane: boolean;
    readonly cluster: boolean;
  };
  readonly activationTimeoutMs: number;
};
type NodeContext = NodeInput & {
  /** Which parts the policy in force needs. A part that is started again gets this as its input. */
  readonly needs: Needs;
  readonly lookups: Lookups | null;
  readonly inspection: InspectionImage | null;
  /** The generation in force; 0 before the first activation. */
  readonly generation: number;
  readonly restarts: Readonly<Record<Part, number>>;
  /** For each part, the message of the latest error with which it ended. */
  readonly ended: Readonly<Partial<Record<Part, string>>>;
  readonly trouble: Troubles;
};
type NodeEvent =
  | Extract<Fact, { type: 'policy.activated' | 'policy.drained' | 'dataplane.closed' }>
  | { readonly type: 'shutdown.requested' };

type RestartDelay = `${Part}Restart`;

function restartDelays() {
  const delayOf =
    (part: Part) =>
    ({ context }: { context: NodeContext }): number =>
      backoffMs(context.restarts[part] - 1, 100, 30_000);
  return Object.fromEntries(PARTS.map((part) => [`${part}Restart`, delayOf(part)])) as Record<
    RestartDelay,
    ReturnType<typeof delayOf>
  >;
}

const node = setup({
  types: readinessTypes<NodeContext, NodeInput, NodeEvent>(),
  actors: Object.fromEntries(PARTS.map((part) => [part, fromPromise(notProvided(part))])) as Record<
    Part,
    AnyActorLogic
  >,
  actions: {
    publish: (_, _params: { message: Message }) => {},
    notePolicy: assign(
      (_, params: { needs: Needs; lookups: Lookups; inspection: InspectionImage; generation: number }) => ({
        needs: params.needs,
        lookups: params.lookups,
        inspection: params.inspection,
        generation: params.generation,
      }),
    ),
    noteEnd: assign(({ context }, params: { part: Part; failure: unknown }) => ({
      restarts: { ...context.restarts, [params.part]: context.restarts[params.part] + 1 },
      ended: { ...context.ended, [params.part]: sentenceOf(params.failure) },
    })),
    forgetEnds: assign(({ context }, params: { part: Part }) => ({
      restarts: { ...context.restarts, [params.part]: 0 },
    })),
  },
  delays: {
    startDeadline: 30_000,
    /**
     * Milliseconds to wait for `policy.drained`. This is longer than the default `activation_timeout` of a
     * node without a cluster (5 s). With a longer `activation_timeout`, such as the default in a cluster (15
     * s), the node may stop before a write has ended.
     */
    drainDeadline: 6_000,
    releaseDeadline: 4_000,
    quietTime: 60_000,
    ...restartDelays(),
  },
});

function inputOf(part: Part, context: NodeContext): unknown {
  const { configured, needs } = context;
  switch (part) {
    case 'policy':
      return {
        enforced: configured.dataplane,
        activationTimeoutMs: context.activationTimeoutMs,
        shared: configured.cluster,
      } satisfies PolicyInput;
    case 'dataplane':
      return { configured: configured.dataplane, needed: needs.dataplane } satisfies DataplaneInput;
    case 'dnsProxy':
      return {
        configured: configured.dns,
        needed: needs.dns,
        enforced: configured.dataplane,
        lookups: context.lookups,
      } satisfies DnsProxyInput;
    case 'servicePlane':
      return {
        configured: configured.servicePlane,
        needed: needs.servicePlane,
        enforced: configured.dataplane,
        inspection: context.inspection,
      } satisfies ServicePlaneInput;
    case 'cluster':
      return { configured: configured.cluster, generation: context.generation } satisfies ClusterInput;
    case 'pendingChange':
      return { shared: configured.cluster } satisfies PendingChangeInput;
    case 'performanceMode':
    case 'reload':
    case 'integrations':
      return undefined;
    case 'observer':
    case 'policyFile':
    case 'kubernetesThread':
      return { startsAtOnce: true } satisfies SupervisedPartInput;
    case 'writeThread':
    case 'explainThread':
    case 'draftThread':
      return { startsAtOnce: false } satisfies SupervisedPartInput;
  }
}

/**
 * Returns the region that supervises one part. If the actor of the part ends with an error, the region
 * starts it again after a back-off. The back-off is reset after an actor has run without an error for the
 * time `quietTime`.
 */
const supervised = (part: Part) =>
  node.createStateConfig({
    initial: 'up',
    states: {
      up: {
        invoke: {
          id: part as 'policy',
          src: part as 'policy',
          input: ({ context }) => inputOf(part, context),
          onError: {
            target: 'down',
            actions: { type: 'noteEnd', params: ({ event }) => ({ part, failure: event.error }) },
          },
        },
        after: { quietTime: { actions: { type: 'forgetEnds', params: { part } } } },
      },
      down: { after: { [`${part}Restart`]: 'up' } },
    },
  });

export const nodeChart = node.createMachine({
  id: 'node',
  type: 'parallel',
  context: ({ input }) => ({
    ...input,
    needs: { dataplane: false, dns: false, servicePlane: false },
    lookups: null,
    inspection: null,
    generation: 0,
    restarts: Object.fromEntries(PARTS.map((part) => [part, 0])) as Record<Part, number>,
    ended: {},
    trouble: {},
  }),
  states: {
    phase: {
      initial: 'starting',
      on: {
        'policy.activated': { actions: { type: 'notePolicy', params: ({ event }) => event } },
        'shutdown.requested': { target: '.draining' },
      },
      states: {
        starting: {
          ...reports('draining', 'ready', 'starting; the stored policy is not active yet'),
          on: {
            'policy.activated': {
              target: 'running',
              actions: { type: 'notePolicy', params: ({ event }) => event },
            },
          },
          after: { startDeadline: 'running' },
        },
        running: {
          ...reports('draining', 'ready', 'not draining'),
        },
        draining: {
          ...reports('draining', 'failed', 'shutting down; the datapath continues to enforce'),
          initial: 'finishing_writes',
          on: { 'shutdown.requested': {} },
          states: {
            finishing_writes: {
              entry: { type: 'publish', params: { message: { type: 'node.draining' } } },
              on: { 'policy.drained': 'releasing' },
              after: { drainDeadline: 'releasing' },
            },
            releasing: {
              entry: { type: 'publish', params: { message: { type: 'dataplane.release_requested' } } },
              on: { 'dataplane.closed': '#node.phase.stopped' },
              after: { releaseDeadline: '#node.phase.stopped' },
            },
          },
        },
        stopped: {
          ...reports('draining', 'failed', 'stopped; the datapath continues to enforce'),
          on: { 'shutdown.requested': {} },
        },
      },
    },
    policy: supervised('policy'),
    dataplane: supervised('dataplane'),
    dnsProxy: supervised('dnsProxy'),
    servicePlane: supervised('servicePlane'),
    cluster: supervised('cluster'),
    pendingChange: supervised('pendingChange'),
    performanceMode: supervised('performanceMode'),
    reload: supervised('reload'),
    observer: supervised('observer'),
    policyFile: supervised('policyFile'),
    writeThread: supervised('writeThread'),
    explainThread: supervised('explainThread'),
    draftThread: supervised('draftThread'),
    kubernetesThread: supervised('kubernetesThread'),
    integrations: supervised('integrations'),
  },
});

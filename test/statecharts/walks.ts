import { NEVER } from 'rxjs';
import { fromEventObservable } from 'xstate';
import { type ClusterContext, clusterChart } from '#statecharts/cluster.chart.js';
import { dataplaneChart } from '#statecharts/dataplane.chart.js';
import type { DataplaneContext } from '#statecharts/dataplane.setup.js';
import { dnsProxyChart } from '#statecharts/dns-proxy.chart.js';
import { followChart } from '#statecharts/follow.chart.js';
import { type IntegrationsContext, integrationsChart } from '#statecharts/integrations.chart.js';
import { interfacesChart } from '#statecharts/interfaces.chart.js';
import {
  type KubernetesContext,
  type KubernetesEvent,
  type KubernetesInput,
  kubernetesChart,
} from '#statecharts/kubernetes.chart.js';
import { nodeChart } from '#statecharts/node.chart.js';
import { type PendingChangeContext, pendingChangeChart } from '#statecharts/pending-change.chart.js';
import { type PerformanceModeContext, performanceModeChart } from '#statecharts/performance-mode.chart.js';
import { policyChart } from '#statecharts/policy.chart.js';
import type { PolicyContext } from '#statecharts/policy.setup.js';
import { type ReloadContext, reloadChart } from '#statecharts/reload.chart.js';
import { servicePlaneChart } from '#statecharts/service-plane.chart.js';
import { supervisedPartChart } from '#statecharts/supervised-part.chart.js';
import { swapChart } from '#statecharts/swap.chart.js';
import type { PolicyInForce } from '#statecharts/write.chart.js';
import { writeChart } from '#statecharts/write.chart.js';
import type { Walk } from './chart-walk.js';
import { INSPECTION, LOOKUPS, NEEDS, PROGRAM, RECORD, SAMPLES, STORED, WRITE } from './sample.js';

const ATTACHED = [
  { missing: [], renamed: [], faults: [], warnings: [] },
  { missing: ['wan0'], renamed: [], faults: [], warnings: ['a warning'] },
  { missing: ['wan0'], renamed: ['lan0 is old0 now'], faults: [], warnings: [] },
  { missing: [], renamed: [], faults: ['wan0 is a port of bridge br0'], warnings: [] },
];

/** Whether the configuration has the DNS proxy or service plane, and whether the policy needs it. */
const PART_INPUTS = [
  { configured: false, needed: false },
  { configured: false, needed: true },
  { configured: true, needed: true },
];
const activated = (dns: boolean) => ({
  type: 'policy.activated',
  record: dns ? RECORD : null,
  generation: 1,
  epoch: 1,
  needs: { dataplane: dns, dns, servicePlane: dns },
  lookups: LOOKUPS,
  inspection: { ...INSPECTION, intercepts: dns },
});
/** The events that tell the DNS proxy or service plane which policy is in force and if it is enforced. */
const DATAPLANE_EVENTS = [
  activated(true),
  activated(false),
  { type: 'dataplane.enforcing', generation: 1, epoch: 1 },
  { type: 'dataplane.lost', reason: 'the worker died' },
  { type: 'dataplane.closed' },
];

const stage = (generation: number) => ({
  type: 'program.stage_requested',
  id: `s${generation}`,
  program: PROGRAM,
  samples: SAMPLES,
  generation,
});
const flip = (generation: number) => ({ type: 'program.flip_requested', id: `f${generation}`, generation });
const changed = (type: string) => ({
  type: 'datapath.changed',
  change: { type, interface: 'lan0', to: 'old0', reason: 'SIGSEGV', pins: ['flows'], refusing: [] },
});

const dataplaneEvents = [
  { type: 'program.desired', program: PROGRAM, samples: SAMPLES, generation: 1 },
  stage(2),
  flip(2),
  { type: 'program.unstage_requested', id: 'u', generation: 2 },
  { type: 'dataplane.release_requested' },
  { type: 'interfaces.change_requested', id: 'i', settings: { names: ['lan0'], renamed: 'keep' } },
  changed('interface_appeared'),
  changed('interface_renamed'),
  changed('refusals_changed'),
  changed('worker_died'),
  {
    type: 'swap.committed',
    target: { program: PROGRAM, samples: SAMPLES, generation: 2 },
    flipRequest: 'f',
  },
  activated(true),
  activated(false),
];

const SELECTOR = { key: 'a', source: { integration: 'prod', node_selector: {} } };
const inForce = (record: typeof RECORD | null, generation: number): PolicyInForce => ({
  record,
  generation,
  needs: NEEDS,
  integrations: [],
  selectors: record === null ? [] : [SELECTOR],
  unresolved: generation === 2 ? [SELECTOR] : [],
  lookups: LOOKUPS,
  inspection: INSPECTION,
});
const COMPILED = { program: PROGRAM, samples: SAMPLES, hasFormer: false, inForce: inForce(RECORD, 2) };
const preparedWrite = (activates: boolean) => ({
  kind: 'prepared_write',
  change: { put: STORED, generation: 2 },
  compiled: activates ? COMPILED : null,
  outcome: { kind: 'written', created: true, stored: STORED, generation: 2, warnings: [], proof: null },
});
const compiled = (record: typeof RECORD | null, everActivated: boolean) => ({
  inForce: inForce(record, 1),
  program: PROGRAM,
  samples: SAMPLES,
  hasFormer: false,
  everActivated,
});
const policyEvents = [
  { type: 'policy.write_requested', id: 'w', write: WRITE },
  { type: 'policy.write_requested', id: 'd', write: { ...WRITE, dryRun: true } },
  { type: 'dataplane.attached' },
  { type: 'dataplane.enforcing', generation: 1, epoch: 1 },
  { type: 'dataplane.enforcing', generation: 2, epoch: 2 },
  { type: 'dataplane.lost', reason: 'the worker died' },
  {
    type: 'program.rejected',
    generation: 1,
    refusal: { kind: 'refused', code: 'capacity_exceeded', detail: 'too large' },
  },
  { type: 'membership.changed' },
  { type: 'node.draining' },
];
const CHANGE = { id: 'c', generation: 2, before: { generation: 1 }, by: 'admin', at: '2026-02-01T08:30:00.000Z' };
const PROPOSAL = { id: 't', node: 'n2', generation: 2, record: RECORD, bodySha256: 'ab' };
const clusterPolicyEvents = [
  { type: 'policy.committed', generation: 2 },
  { type: 'policy.proposed', proposal: PROPOSAL },
  { type: 'policy.proposal_ended', id: 't' },
];
const outcome = preparedWrite(true).outcome;
const LOST_RACE = Object.assign(new Error('another node has written'), {
  refusal: { kind: 'refused', code: 'write_conflict', detail: 'another node has written' },
});
const policyOutputs = {
  restore: [compiled(RECORD, true), compiled(null, true), compiled(null, false)],
  write: [
    { kind: 'ended' },
    { kind: 'activated', inForce: inForce(RECORD, 2), epoch: 2 },
    { kind: 'unflipped', inForce: inForce(RECORD, 2), outcome },
  ],
  follow: [
    { kind: 'ended' },
    { kind: 'activated', inForce: inForce(RECORD, 2), epoch: 2, everActivated: true },
    { kind: 'failed', reason: 'too large' },
  ],
};
const policyKey = ({ context }: { context: PolicyContext }) => [
  context.inForce?.record === null,
  context.inForce?.generation,
  context.everActivated,
  context.restored?.inForce.generation,
  context.queue.slice(0, 1).map(({ id }) => id),
  context.current?.id,
  context.current?.repeated,
  context.expired,
  context.unflipped?.generation,
  context.draining,
  context.dataplaneLost,
  context.committed,
  context.unfollowed,
  context.proposal?.id,
  context.rehearsed?.id,
  context.hasWriteLock,
  context.isStale,
  context.isRefresh,
];
// One queued write is enough for this walk: no guard distinguishes one queued write from two.
const boundedQueue = ({ context }: { context: PolicyContext }) => context.queue.length < 2;

const PHASES = [
  'connecting',
  'listing',
  'watching',
  'silent',
  'unauthorized',
  'forbidden',
  'backing_off',
  null,
] as const;

export type NamedWalk = Walk & { readonly regions: Readonly<Record<string, string>> };

/**
 * The walks over the states of each chart, by chart id. `regions` maps each region that reports a readiness
 * check to the name of the check. The key `''` stands for a chart without regions.
 */
export const WALKS: Readonly<Record<string, readonly NamedWalk[]>> = {
  node: [
    {
      machine: nodeChart,
      input: {
        configured: { dataplane: true, dns: false, servicePlane: false, cluster: false },
        activationTimeoutMs: 5_000,
      },
      events: [
        activated(true),
        { type: 'shutdown.requested' },
        { type: 'policy.drained' },
        { type: 'dataplane.closed' },
      ],
      // The regions of the parts do not influence each other. So the walk need not continue from states in
      // which two parts are down.
      within: (({ value }: { value: object }) =>
        Object.values(value).filter((state) => state === 'down').length < 2) as never,
      regions: { phase: 'draining' },
    },
  ],
  policy: [
    ...[true, false].map((enforced) => ({
      machine: policyChart,
      input: { enforced, activationTimeoutMs: 5_000, shared: false },
      events: [...policyEvents, { type: 'deadline.passed', id: 'w' }, { type: 'deadline.passed', id: 'd' }],
      outputs: policyOutputs,
      key: policyKey as never,
      within: boundedQueue as never,
      regions: { activation: 'policy_ready' },
    })),
    // In a cluster, this walk has only few of the events above, which keeps the number of states small.
    {
      machine: policyChart,
      input: { enforced: true, activationTimeoutMs: 5_000, shared: true },
      events: [
        { type: 'policy.write_requested', id: 'w', write: WRITE },
        { type: 'dataplane.enforcing', generation: 1, epoch: 1 },
        { type: 'node.draining' },
        { type: 'deadline.passed', id: 'w' },
        ...clusterPolicyEvents,
      ],
      outputs: {
        ...policyOutputs,
        write: [...policyOutputs.write, { kind: 'lost_race' }],
        restore: [compiled(RECORD, true)],
      },
      key: policyKey as never,
      within: boundedQueue as never,
      regions: { activation: 'policy_ready' },
    },
  ],
  write: [
    { enforced: true, shared: false, mayRepeat: false },
    { enforced: false, shared: false, mayRepeat: false },
    { enforced: false, shared: true, mayRepeat: true },
    { enforced: true, shared: true, mayRepeat: true },
  ].flatMap((place) =>
    [WRITE, { ...WRITE, dryRun: true }].map((write) => ({
      machine: writeChart,
      input: { id: 'w', write, ...place },
      events: [{ type: 'write.expired', refusal: { kind: 'refused', code: 'activation_timeout', detail: 'late' } }],
      outputs: {
        prepare: [
          preparedWrite(true),
          preparedWrite(false),
          { kind: 'refused', code: 'not_found', detail: 'no such policy' },
        ],
        stage: [{ compiled: COMPILED, lines: 3, proof: { classes: 1, checked: 2, complete: true }, rehearsed: null }],
        commit: [7],
        flip: [{ epoch: 2 }],
      },
      errors: { stage: [new Error('EBUSY'), LOST_RACE], commit: [new Error('EBUSY'), LOST_RACE] },
      key: (({ context }: { context: { prepared: { compiled: unknown } | null; output: { kind: string } } }) => [
        context.prepared?.compiled != null,
        context.output.kind,
      ]) as never,
      regions: {},
    })),
  ),
  follow: [true, false].flatMap((enforced) =>
    [PROPOSAL, null].map((proposal) => ({
      machine: followChart,
      input: { proposal, enforced },
      events: [{ type: 'proposal.committed' }, { type: 'proposal.ended' }],
      outputs: { prepare: [compiled(RECORD, true)], stage: [compiled(RECORD, true)], flip: [{ epoch: 2 }] },
      key: (({ context }: { context: { committed: boolean; withdrawn: boolean } }) => [
        context.committed,
        context.withdrawn,
      ]) as never,
      regions: {},
    })),
  ),
  dataplane: [
    { configured: true, needed: false },
    { configured: false, needed: false },
    { configured: false, needed: true },
  ].map((input) => ({
    machine: dataplaneChart,
    input,
    events: dataplaneEvents,
    outputs: {
      open: [
        { generation: 0, sinceMs: null },
        { generation: 2, sinceMs: 5 },
      ],
      probe: [[], [{ what: 'CAP_BPF', sentence: 'Run as root.' }]],
      attach: ATTACHED,
      swap: [
        { kind: 'flipped', generation: 1, program: PROGRAM, epoch: 1, sinceMs: 5, uncompiled: 0 },
        { kind: 'flipped', generation: 2, program: PROGRAM, epoch: 2, sinceMs: 6, uncompiled: 0 },
        { kind: 'refused', failure: new Error('EBUSY') },
        { kind: 'refused', failure: Object.assign(new Error('too large'), { code: 'capacity_exceeded' }) },
        { kind: 'unstaged' },
        { kind: 'lost', failure: new Error('EBUSY') },
      ],
    },
    key: (({ context }: { context: DataplaneContext }) => [
      context.desired?.generation,
      context.inForce?.generation,
      context.adopted,
      Math.min(context.attempts, 5),
    ]) as never,
    regions: { '': 'dataplane_running' },
  })),
  interfaces: [true, false].map((configured) => ({
    machine: interfacesChart,
    input: { configured },
    // The dataplane chart sends `interfaces.attached` only if the configuration has a `dataplane` section.
    events: [
      ...(configured ? ATTACHED.map((attached) => ({ type: 'interfaces.attached', attached })) : []),
      { type: 'interfaces.change_requested', id: 'i', settings: { names: ['lan0'], renamed: 'keep' } },
      changed('interface_appeared'),
      changed('interface_renamed'),
      changed('pins_lost'),
      changed('refusals_changed'),
      changed('worker_died'),
    ],
    outputs: { reattach: ATTACHED },
    key: (({ context }: { context: { missing: unknown; renamed: unknown; faults: unknown } }) => [
      context.missing,
      context.renamed,
      context.faults,
    ]) as never,
    regions: { '': 'dataplane_config' },
  })),
  swap: ['s', null].map((stageRequest) => ({
    // This walk runs the swap chart without its parent, so the event to the parent must not be sent.
    machine: swapChart.provide({ actions: { announceCommitment: () => {} } }),
    input: { target: { program: PROGRAM, samples: SAMPLES, generation: 2 }, stageRequest },
    events: [
      stage(3),
      flip(2),
      flip(3),
      { type: 'program.unstage_requested', id: 'u', generation: 2 },
      { type: 'program.superseded' },
      { type: 'datapath.lost', reason: 'SIGSEGV' },
    ],
    outputs: {
      stage: [{ lines: 3 }],
      prove: [{ classes: 1, checked: 2, complete: true }],
      flip: [{ epoch: 2, sinceMs: 6 }],
    },
    errors: { prove: [new Error('EBUSY'), Object.assign(new Error('a packet'), { code: 'proof_failed' })] },
    key: (({ context }: { context: { isSuperseded: boolean; target: { generation: number } } }) => [
      context.isSuperseded,
      context.target.generation,
    ]) as never,
    regions: {},
  })),
  dnsProxy: PART_INPUTS.flatMap((configured) =>
    [
      { enforced: true, lookups: null },
      { enforced: false, lookups: LOOKUPS },
    ].map((more) => ({
      machine: dnsProxyChart,
      input: { ...configured, ...more },
      events: [
        ...DATAPLANE_EVENTS,
        { type: 'dns.upstreams_changed', alive: [], dead: ['192.0.2.53:53'] },
        { type: 'dns.upstreams_changed', alive: ['192.0.2.53:53'], dead: [] },
        { type: 'dns.died', reason: 'the thread ended' },
        { type: 'dns.change_requested', id: 'n', settings: {} },
        { type: 'settings.changed' },
      ],
      regions: { '': 'dns_allowlist' } as const,
    })),
  ),
  servicePlane: PART_INPUTS.flatMap((configured) =>
    [
      { enforced: true, inspection: null },
      { enforced: false, inspection: INSPECTION },
    ].map((more) => ({
      machine: servicePlaneChart,
      input: { ...configured, ...more },
      events: [
        ...DATAPLANE_EVENTS,
        { type: 'service_plane.ca_changed', hasCa: true, fault: null },
        { type: 'service_plane.ca_changed', hasCa: false, fault: 'its key cannot be unsealed' },
        { type: 'service_plane.upstream_ca_changed', fault: 'the file contains no readable PEM certificate' },
        { type: 'service_plane.upstream_ca_changed', fault: null },
        { type: 'service_plane.splice_fault_changed', fault: 'CAP_NET_RAW missing' },
        { type: 'service_plane.splice_fault_changed', fault: null },
        { type: 'service_plane.died', reason: 'the thread ended' },
        { type: 'service_plane.change_requested', id: 'n', settings: {} },
        { type: 'settings.changed' },
      ],
      regions: { '': 'service_plane' } as const,
    })),
  ),
  pendingChange: [false, true].map((shared) => ({
    machine: pendingChangeChart,
    input: { shared },
    events: [
      { type: 'change.noted', change: null },
      { type: 'change.noted', change: { ...CHANGE, terms: { kind: 'confirm', within_ms: 60_000 } } },
      {
        type: 'change.noted',
        change: { ...CHANGE, terms: { kind: 'rollout', share: 10, hold_ms: 60_000, nodes: ['n1'] } },
      },
      ...(shared ? [true, false].map((isLeader) => ({ type: 'leader.changed', isLeader })) : []),
    ],
    outputs: { decide: [undefined] },
    errors: { decide: [new Error('etcd cannot be reached')] },
    key: (({ context }: { context: PendingChangeContext }) => [context.change?.terms.kind, context.decides]) as never,
    regions: {},
  })),
  cluster: [false, true].map((configured) => ({
    machine: clusterChart,
    input: { configured, generation: 0 },
    events: [
      { type: 'member.joined' },
      { type: 'member.refused', reason: 'the id is taken' },
      { type: 'member.lost', reason: 'no connection' },
      { type: 'leader.changed', leader: null, isLeader: false },
      { type: 'leader.changed', leader: 'n1', isLeader: true },
      { type: 'leader.changed', leader: 'n2', isLeader: false },
      { type: 'replica.caught_up' },
      { type: 'replica.lost', reason: 'no connection' },
      { type: 'replica.contradicted', reason: 'etcd is older' },
      { type: 'replica.uncreated' },
      { type: 'replica.unkept', reason: 'no space left on the device' },
      { type: 'replica.kept' },
      { type: 'etcd.full' },
      { type: 'etcd.writable' },
      { type: 'cluster.recovered' },
      { type: 'policy.committed', generation: 1 },
      activated(true),
    ],
    key: (({ context }: { context: ClusterContext }) => [
      context.leader,
      context.isLeader,
      context.committed > context.generation,
      context.apart,
      context.isFull,
      context.notices,
    ]) as never,
    regions: { membership: 'cluster', replication: 'policy_replication' },
  })),
  integrations: [
    {
      machine: integrationsChart.provide({
        actors: {
          integration: kubernetesChart.provide({
            actors: { watch: fromEventObservable<KubernetesEvent, KubernetesInput>(() => NEVER) },
          }),
        },
      }),
      events: [[], ['prod'], ['prod', 'test'], ['test']].map((names) => ({ type: 'integrations.changed', names })),
      key: (({ context }: { context: IntegrationsContext }) => context.names) as never,
      regions: {},
    },
  ],
  kubernetes: [
    {
      machine: kubernetesChart,
      input: { name: 'prod' },
      events: [
        ...['pods', 'nodes'].flatMap((name) =>
          PHASES.map((phase) => ({ type: 'reflector.changed', name, phase, reason: null, at: '2026-02-01T08:30:00Z' })),
        ),
      ],
      key: (({ context }: { context: KubernetesContext }) => [
        context.reflectors.pods,
        context.reflectors.nodes,
      ]) as never,
      regions: {},
    },
  ],
  performanceMode: [
    {
      machine: performanceModeChart,
      events: [
        { type: 'performance_mode.write_requested', id: 'p', write: { enabled: false, author: 'alice' } },
        {
          type: 'performance_mode.write_requested',
          id: 'q',
          write: { enabled: false, author: 'alice', expectedRevision: 7 },
        },
        { type: 'setting.changed', mode: { enabled: false, source: 'cluster', revision: 3 } },
        { type: 'setting.changed', mode: null },
      ],
      outputs: {
        read: [null, { enabled: false, source: 'local', revision: 1 }],
        write: [
          { enabled: true, source: 'local', revision: 2 },
          { enabled: false, source: 'local', revision: 3 },
        ],
        follow: [{ enabled: false, source: 'cluster', revision: 3 }],
      },
      key: (({ context }: { context: PerformanceModeContext }) => [
        context.queue[0]?.id,
        context.followed?.revision,
        context.mode.revision,
      ]) as never,
      within: (({ context }: { context: { queue: readonly unknown[] } }) => context.queue.length < 2) as never,
      regions: { '': 'performance_mode' },
    },
  ],
  reload: [
    {
      machine: reloadChart,
      events: [
        {
          type: 'config.reload_requested',
          id: 'a',
          request: { dryRun: false, allowUnpoliced: false, allowOpen: false, author: 'alice' },
          until: 0,
        },
        {
          type: 'config.reload_requested',
          id: 'b',
          request: { dryRun: true, allowUnpoliced: false, allowOpen: false, author: 'SIGHUP' },
          until: 0,
        },
      ],
      outputs: {
        read: [[], ['dns', 'log']].map((parts) => ({ applied: [], unchanged: [], needsRestart: [], parts })),
      },
      key: (({ context }: { context: ReloadContext }) => [
        context.queue[0]?.id,
        context.plan?.parts.length,
        context.changed.length,
        context.failure === null,
        context.unrestored.length,
      ]) as never,
      within: (({ context }: { context: ReloadContext }) => context.queue.length < 2) as never,
      regions: {},
    },
  ],
  supervisedPart: [true, false].map((startsAtOnce) => ({
    machine: supervisedPartChart,
    input: { startsAtOnce },
    events: [{ type: 'part.failed', reason: 'the thread ended' }, { type: 'part.recovered' }],
    regions: {},
  })),
};

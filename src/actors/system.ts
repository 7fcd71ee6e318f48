import { setTimeout as pause } from 'node:timers/promises';
import { type AnyActorRef, type AnyMachineSnapshot, createActor, waitFor } from 'xstate';
import { ask } from '#bus/ask.js';
import { type Bus, createBus } from '#bus/bus.js';
import type { Message, PerformanceMode, PerformanceModeWrite } from '#bus/bus-messages.js';
import type { PolicyOutcome, PolicyWrite, Refusal } from '#bus/policy-requests.js';
import { isRefusal } from '#bus/refused.js';
import type { Statecharts } from '#bus/statecharts.js';
import { ChartRecorder } from '#chart-inspection/chart-recorder.js';
import type { Cluster } from '#cluster/cluster.js';
import { CanaryHealth } from '#cluster/rollout/canary-health.js';
import type { LastReload, ReloadReport, ReloadRequest } from '#contracts/config-reload.js';
import type { Adoption, Datapath, DatapathStats } from '#contracts/datapath.js';
import type { EventSource } from '#contracts/event-source.js';
import type { ExplainNode } from '#contracts/explain-facts.js';
import type { Packet } from '#contracts/policy-model.js';
import type { PolicyRecord, StoredPolicy } from '#contracts/policy-record.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { DnsProxy } from '#dns/dns-proxy.js';
import { ownAddresses } from '#dns/own-addresses.js';
import type { Explanation } from '#policy/explain/explain.js';
import { createPolicyThread, type PolicyThread } from '#policy-thread/policy-thread.js';
import type { PolicySurroundings } from '#policy-thread/policy-work.js';
import { type ClusterRequests, clusterRequestsOver } from '#requests/cluster-requests.js';
import { enforcedBy } from '#requests/enforced-by.js';
import {
  ACTIVE_BUDGET_MS,
  DRAFT_BUDGET_MS,
  type ExplainQuestion,
  explainLane,
  explainPolicy,
  WAITING_PER_SUBJECT,
} from '#requests/explanation.js';
import { FairQueue, inTurn } from '#requests/fair-queue.js';
import { type Integrations, integrationsOver } from '#requests/integrations.js';
import { arrivalOf, grantedFor, openFlowOf, type Traffic, trafficOver, translationOf } from '#requests/live-traffic.js';
import { deniedBy, failedChecks } from '#requests/node-health.js';
import { lookupsOver, type NodeLookups } from '#requests/node-lookups.js';
import { type PendingChanges, pendingChangesOver } from '#requests/pending-changes.js';
import { describePolicy, type PolicyDescription } from '#requests/policy-description.js';
import { readGroup } from '#requests/read-group.js';
import { type ServicePlaneState, servicePlaneStateOver } from '#requests/service-plane-state.js';
import type { DataplaneContext } from '#statecharts/dataplane.chart.js';
import { type NodeInput, PARTS, type Part } from '#statecharts/node.chart.js';
import type { PerformanceModeContext } from '#statecharts/performance-mode.chart.js';
import type { PolicyContext } from '#statecharts/policy.setup.js';
import { refusal } from '#statecharts/refusal.js';
import type { ServicePlaneContext } from '#statecharts/service-plane.chart.js';
import type { IntegrationStore, PolicyStore, SettingsStore } from '#store/store-types.js';
import type { DataplanePorts } from './dataplane.actor.js';
import { acceptingByEnforced } from './enforced-policy.js';
import { EventSwitch } from './event-switch.js';
import { nodeActor } from './node.actor.js';
import { conditionsOf, type NodeView, type ReadinessReport, reportOf, supervisedPartsOf } from './readiness.js';
import type { ReloadPorts } from './reload.actor.js';
import { routeMessages } from './router.js';
import type { ServicePlanePorts } from './service-plane.actor.js';
import { createStateTimes } from './state-times.js';

export type SystemPorts = {
  readonly store: {
    readonly policies: PolicyStore;
    readonly settings: SettingsStore;
    readonly integrations: IntegrationStore;
  };
  /** The datapath and its settings; null if the configuration has no `dataplane` section. */
  readonly dataplane: {
    readonly datapath: Datapath;
    readonly interfaces: readonly string[];
    /** Whether the datapath also classifies packets to and from the node itself. */
    readonly policeLocal?: boolean;
    /** The setting `dns.transparent`: whether the datapath redirects DNS lookups to the DNS proxy. */
    readonly divertsDns?: boolean;
    readonly reversePath?: ExplainNode['reversePath'];
    readonly openFailed?: DataplanePorts['openFailed'];
    /** The policy that the kernel enforces when the process starts, see `BegunDatapath.found`. */
    readonly found?: Promise<Adoption['inForce']>;
  } | null;
  /** The setting `policy.fallback`: the action for packets if the policy has no `default_policy`. */
  readonly fallback: PolicySurroundings['fallback'];
  readonly activationTimeoutMs: number;
  /** The DNS proxy; null if the configuration has no `dns` section. */
  readonly dns: DnsProxy | null;
  /** The service plane; null if the configuration has no `service_plane` section. */
  readonly servicePlane: ServicePlanePorts | null;
  /** The cluster; null if the configuration has no `cluster` section. */
  readonly cluster?: Cluster | null;
  /**
   * `observer`: the observer thread. `policyFile`: the part that applies `policy.file` and its changes. The
   * node actor starts these parts. Null or omitted: the node does not have the part.
   */
  readonly observer?: SupervisedPart | null;
  readonly policyFile?: SupervisedPart | null;
  /** The setting `node.id`. */
  readonly nodeId?: string;
  /** The configuration file, for reloads. Null or omitted: the node cannot reload. */
  readonly reload?: ReloadPorts | null;
  readonly now?: () => Date;
  /**
   * Creates a policy thread. The system uses three threads: one for writes, one to explain the active policy,
   * and one to explain drafts.
   */
  readonly createThread?: () => PolicyThread;
  /** The thread for writes, if the caller has begun it before. */
  readonly writing?: PolicyThread;
};

type PolicyChoice =
  | { readonly by: 'active' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

/** All functions of the running node that the API uses. */
export type System = {
  /** Resolves when the stored policy is in force, after 30 s without that, or when the node is shut down. */
  readonly started: Promise<void>;
  readonly bus: Bus<Message>;
  readonly policies: {
    /**
     * Writes a policy. An invalid request does not reject the promise; the promise resolves with a `Refusal`.
     */
    write(write: PolicyWrite): Promise<PolicyOutcome>;
    read(which: PolicyChoice): Promise<StoredPolicy | null>;
    /**
     * Returns the record of a policy and the JSON text of one source group; null if the policy or the group
     * does not exist.
     */
    readGroup(id: string, group: string): Promise<StoredPolicy | Refusal | null>;
    list(): Promise<readonly PolicyRecord[]>;
    history(id: string): Promise<readonly PolicyRecord[]>;
    /** Returns the generation in force; 0 before the first activation. */
    generation(): number;
    /** Waits until the generation in force is `wanted` or a later one. Returns false after `withinMs`. */
    reaches(wanted: number, withinMs: number): Promise<boolean>;
  };
  /**
   * Explains the decision of a policy. `subject` is the subject of the client's API token. Requests of
   * different subjects alternate in the queue.
   */
  explain(question: ExplainQuestion, subject: string): Promise<Explanation | Refusal>;
  /**
   * Returns a description of the active policy; null if no policy is active. A separate thread reads and
   * compiles the policy again.
   */
  describe(signal: AbortSignal): Promise<PolicyDescription | null>;
  readonly performanceMode: {
    /** Where a written performance mode is stored. */
    readonly source: SettingsStore['source'];
    read(): Promise<PerformanceMode>;
    write(write: PerformanceModeWrite): Promise<PerformanceMode | Refusal>;
  };
  readonly configuration: {
    /** Reloads the configuration file. After a failure, the promise resolves with a `Refusal`. */
    reload(request: ReloadRequest): Promise<ReloadReport | Refusal>;
    /** The last reload that was no dry run; null if there was none. */
    lastReload(): LastReload | null;
  };
  readonly integrations: Integrations;
  readonly pendingChange: PendingChanges;
  readonly cluster: ClusterRequests;
  readiness(): ReadinessReport;
  /**
   * Returns the time since when the kernel enforces the generation in force, also if an earlier process put
   * it in force: ISO 8601, UTC. Null if nothing is in force, or if the time is not known.
   */
  inForceSince(): string | null;
  /** Returns the counters of the datapath; null while the datapath is not open. */
  datapathStats(): Promise<DatapathStats | null>;
  /**
   * Passes the event source of the datapath to `taker`, see `Datapath.takeEvents`. Has no effect on a node
   * without a dataplane.
   */
  takeEvents(taker: (source: EventSource) => void): void;
  /**
   * Sets whether the BPF program also sends flow events while performance mode is enabled. Initially, it
   * sends them.
   */
  setFlowsWanted(wanted: boolean): Promise<void>;
  readonly traffic: Traffic;
  readonly lookups: NodeLookups;
  readonly inspecting: ServicePlaneState;
  /** The recorded state transitions of all actors. The record contains no secrets. */
  readonly debug: Statecharts;
  /** Returns the XState snapshots of all running actors; the key is the name of the actor. */
  snapshots(): Readonly<Record<string, AnyMachineSnapshot>>;
  /**
   * Finishes the current policy write and closes the datapath. The BPF programs in the kernel continue to
   * enforce. A repeated call has no further effect.
   */
  shutdown(): Promise<void>;
};

/**
 * The time for which a policy write waits for its response, in addition to the activation timeout. A commit
 * may wait for the disk, and the dataplane may be opened again afterwards.
 */
const WRITE_TIMEOUT_MS = 30_000;
/** How often a read with a minimum generation compares the generation in force. */
const GENERATION_POLL_MS = 10;
const SETTING_TIMEOUT_MS = 10_000;
/** The time for which a reload waits, in addition to the activation timeout of a policy file. */
const RELOAD_TIMEOUT_MS = 120_000;
const FIRST_READ_TIMEOUT_MS = 2_000;

/** Creates the system, and starts the node actor with all its parts. */
export function createSystem(ports: SystemPorts): System {
  const { store, dataplane, dns, servicePlane, fallback, activationTimeoutMs } = ports;
  const cluster = ports.cluster ?? null;
  const now = ports.now ?? (() => new Date());
  const createThread = ports.createThread ?? createPolicyThread;
  const writing = ports.writing ?? createThread();
  const explaining = createThread();
  const drafting = createThread();
  const explainPorts = {
    policies: store.policies,
    active: explainLane(explaining, ACTIVE_BUDGET_MS),
    drafts: explainLane(drafting, DRAFT_BUDGET_MS),
  };
  const surroundings: PolicySurroundings = {
    fallback,
    dns: dns !== null,
    servicePlane: servicePlane !== null,
    policesNode: dataplane?.policeLocal ?? false,
  };
  const bus = createBus<Message>();

  const events = new EventSwitch(dataplane?.datapath ?? null);
  let adoptedGeneration = 0;
  let hasInterceptCa = false;
  const caSeen = servicePlane?.interceptCa.changed.subscribe((material) => {
    hasInterceptCa = material?.kind === 'ca';
  });
  let planesClosed: Promise<unknown> | undefined;
  const closePlanes = (): Promise<unknown> =>
    (planesClosed ??= Promise.all([dns?.close(), servicePlane?.plane.close()]));
  const health = new CanaryHealth({
    generation: () => generation,
    failedChecks: () => failedChecks(conditionsOf(view())),
    denied: async () => deniedBy(await datapathStats(), await lookups.stats(), await inspecting.stats()),
  });
  const acceptByEnforced =
    servicePlane === null || dataplane?.found === undefined
      ? async () => {}
      : acceptingByEnforced(servicePlane.plane, dataplane.found);
  const logic = nodeActor(bus, {
    policyWrites: {
      ...store,
      thread: writing,
      surroundings,
      enforced: dataplane !== null,
      now,
      adoptedGeneration: () => adoptedGeneration,
      hasInterceptCa: () => hasInterceptCa,
      repeats: cluster !== null,
      compiled: (stored) => void acceptByEnforced(stored),
      chooseNodes: cluster === null ? null : (share) => cluster.rollouts.chooseNodes(share),
    },
    dataplane: dataplane === null ? null : { ...dataplane, beforeClose: closePlanes },
    dns,
    servicePlane,
    cluster,
    settings: store.settings,
    health,
    reload: ports.reload ?? null,
    supervised: {
      observer: ports.observer ?? null,
      policyFile: ports.policyFile ?? null,
      writeThread: writing,
      explainThread: explaining,
      draftThread: drafting,
    },
    events,
    now,
  });
  const configured = {
    cluster: cluster !== null,
    dataplane: dataplane !== null,
    dns: dns !== null,
    servicePlane: servicePlane !== null,
  };
  const input: NodeInput = { configured, activationTimeoutMs };
  const times = createStateTimes(now);
  const recorder = new ChartRecorder(now);
  let started = false;
  const node = createActor(logic, {
    input,
    inspect: (inspected) => {
      recorder.inspect(inspected);
      if (inspected.type === '@xstate.snapshot' && started) noteTimesSoon();
    },
  });

  const partOf = (part: Part): AnyActorRef | undefined =>
    (node.getSnapshot().children as Partial<Record<Part, AnyActorRef>>)[part];
  const snapshotOf = (part: Part): AnyMachineSnapshot | undefined =>
    partOf(part)?.getSnapshot() as AnyMachineSnapshot | undefined;
  const view = (): NodeView => ({
    snapshots: {
      node: node.getSnapshot(),
      ...(Object.fromEntries(PARTS.map((part) => [part, snapshotOf(part)])) as Record<Part, AnyMachineSnapshot>),
    },
    ended: node.getSnapshot().context.ended,
  });

  const noteTimes = (): void => {
    const seen = view();
    times.note([...conditionsOf(seen), ...supervisedPartsOf(seen)]);
  };
  let isToNote = false;
  // One message changes the snapshots of several actors, so the states are read once after all of them.
  const noteTimesSoon = (): void => {
    if (isToNote) return;
    isToNote = true;
    queueMicrotask(() => {
      isToNote = false;
      noteTimes();
    });
  };

  const isEngaged = (): boolean => snapshotOf('dataplane')?.matches('engaged') === true;

  const datapathStats = async (): Promise<DatapathStats | null> =>
    dataplane !== null && isEngaged() ? dataplane.datapath.stats() : null;
  const isAnswering = () => snapshotOf('dnsProxy')?.matches({ running: 'serving' }) === true;
  const isServing = () => snapshotOf('servicePlane')?.matches({ running: 'serving' }) === true;
  const lookups = lookupsOver(dns, isAnswering);
  const inspecting = servicePlaneStateOver(servicePlane?.plane ?? null, isServing);

  let generation = 0;
  let lastReload: LastReload | null = null;
  const reaches = async (wanted: number, withinMs: number): Promise<boolean> => {
    for (const until = performance.now() + withinMs; generation < wanted; await pause(GENERATION_POLL_MS))
      if (performance.now() >= until) return false;
    return true;
  };
  const changes = pendingChangesOver({ policies: store.policies, rollouts: cluster?.rollouts ?? null, reaches, now });
  bus.messages.subscribe((message) => {
    if (message.type === 'policy.activated') {
      generation = message.generation;
      cluster?.describe(generation);
    }
    if (message.type === 'config.reloaded') {
      const { type: _, failure, ...reload } = message;
      lastReload = { ...reload, at: now().toISOString(), detail: failure?.detail ?? null };
    }
    if (message.type === 'dataplane.adopted') {
      adoptedGeneration = message.generation;
      void changes.adopted(message.generation);
    }
  });
  routeMessages(bus, (recipient) => (recipient === 'node' ? node : partOf(recipient)));
  const followed = store.policies.followed.subscribe((generation) =>
    bus.publish({ type: 'policy.committed', generation }),
  );
  const proposed = cluster?.proposals.subscribe((change) =>
    bus.publish(
      'ended' in change
        ? { type: 'policy.proposal_ended', id: change.ended }
        : { type: 'policy.proposed', proposal: change },
    ),
  );
  const sampling = cluster === null ? null : health.watch();
  node.start();
  started = true;
  noteTimes();

  let stopped = false;
  const stop = async (): Promise<void> => {
    node.send({ type: 'shutdown.requested' });
    await waitFor(node, (snapshot) => snapshot.matches({ phase: 'stopped' }));
    stopped = true;
    node.stop();
    caSeen?.unsubscribe();
    followed.unsubscribe();
    sampling?.unsubscribe();
    proposed?.unsubscribe();
    await Promise.all([writing.close(), explaining.close(), drafting.close(), closePlanes()]);
  };
  let stopping: Promise<void> | undefined;

  const traffic = trafficOver(dataplane?.datapath ?? null, isEngaged);
  const nodeNow = async (packet: Packet, ofDraft: boolean): Promise<ExplainNode> => {
    const { hasCa } = (snapshotOf('servicePlane')?.context ?? { hasCa: false }) as Pick<ServicePlaneContext, 'hasCa'>;
    return {
      granted: await grantedFor(traffic, packet.destination),
      plane: isServing() ? (hasCa ? 'inspecting' : 'no_ca') : 'absent',
      policesNode: surroundings.policesNode,
      own: [...ownAddresses()],
      dataplane: dataplane === null ? 'absent' : isEngaged() ? 'running' : 'away',
      diverts: dataplane?.divertsDns !== true ? 'none' : isAnswering() ? 'proxy' : 'absent',
      reversePath: dataplane?.reversePath ?? 'off',
      arrival: await arrivalOf(traffic, packet.source),
      // Omit the flow for a draft. An explain request treats the draft as the policy in force, and a new
      // policy makes the datapath classify open flows again.
      flow: ofDraft || packet.sourcePort === 0 ? null : await openFlowOf(traffic, packet),
      translation: await translationOf(traffic, packet),
    };
  };
  // This queue runs one dry run at a time. Clients with the role `readonly` can also send dry runs, and a
  // policy write must wait for at most one of them.
  const dryRuns = new FairQueue(WAITING_PER_SUBJECT);
  const hasStarted = (snapshot: { matches(state: object): boolean }) => !snapshot.matches({ phase: 'starting' });
  return {
    bus,
    started: waitFor(node, hasStarted).then(() => {}),
    policies: {
      write: async (write) => {
        if (stopped) return refusal('draining', 'the node is shut down');
        const request = () => ask(bus, 'policy.write', { write }, activationTimeoutMs + WRITE_TIMEOUT_MS);
        if (write.dryRun) return inTurn(dryRuns, write.author, request);
        const outcome = await request();
        if (write.wait === undefined || cluster === null) return outcome;
        return enforcedBy(outcome, write.wait, async () => (await cluster.status()).members);
      },
      read: (which) => readPolicy(store.policies, which),
      readGroup: (id, group) => readGroup({ policies: store.policies, thread: writing, surroundings }, id, group),
      list: () => store.policies.list(),
      history: (id) => store.policies.history(id),
      generation: () => generation,
      reaches,
    },
    pendingChange: changes,
    explain: (question, subject) => explainPolicy({ ...explainPorts, surroundings, node: nodeNow }, question, subject),
    describe: (signal) => describePolicy({ policies: store.policies, createThread, surroundings }, signal),
    performanceMode: {
      source: store.settings.source,
      read: async () => {
        const actor = partOf('performanceMode');
        if (actor === undefined) throw new Error('read the performance mode: the actor failed and is being restarted');
        const options = { timeout: FIRST_READ_TIMEOUT_MS };
        const isKnown = (snapshot: AnyMachineSnapshot) => !snapshot.matches('reading');
        const snapshot = (await waitFor(actor, isKnown, options)) as AnyMachineSnapshot;
        return (snapshot.context as PerformanceModeContext).mode;
      },
      write: async (write) => {
        const outcome = await ask(bus, 'performance_mode.write', { write }, SETTING_TIMEOUT_MS);
        return isRefusal(outcome) ? outcome : outcome.mode;
      },
    },
    configuration: {
      reload: async (request) => {
        if (ports.reload == null || stopping !== undefined)
          return refusal('feature_unavailable', 'the node is shut down, or has no configuration file');
        const timeoutMs = activationTimeoutMs + RELOAD_TIMEOUT_MS;
        return ask(bus, 'config.reload', { request, until: performance.now() + timeoutMs }, timeoutMs);
      },
      lastReload: () => lastReload,
    },
    integrations: integrationsOver(
      store.integrations,
      () => {
        const context = snapshotOf('policy')?.context as PolicyContext | undefined;
        return context?.inForce?.integrations ?? null;
      },
      changes.isPending,
    ),
    cluster: clusterRequestsOver({
      cluster,
      nodeId: ports.nodeId ?? '',
      generation: () => generation,
      adoptedGeneration: () => adoptedGeneration,
      recovered: () => bus.publish({ type: 'cluster.recovered' }),
    }),
    readiness: () => {
      noteTimes();
      const seen = view();
      return reportOf(conditionsOf(seen), supervisedPartsOf(seen), (name) => times.since(name));
    },
    inForceSince: () => {
      const sinceMs = (snapshotOf('dataplane')?.context as DataplaneContext | undefined)?.inForceSinceMs ?? null;
      return sinceMs === null ? null : new Date(sinceMs).toISOString();
    },
    datapathStats,
    traffic,
    lookups,
    inspecting,
    takeEvents: (taker) => dataplane?.datapath.takeEvents(taker),
    setFlowsWanted: (wanted) => events.setFlowsWanted(wanted),
    debug: recorder,
    snapshots: () => {
      const { snapshots } = view();
      return Object.fromEntries(
        Object.entries(snapshots).filter(([, snapshot]) => snapshot !== undefined),
      ) as unknown as Record<string, AnyMachineSnapshot>;
    },
    shutdown: () => (stopping ??= stop()),
  };
}

async function readPolicy(policies: PolicyStore, which: PolicyChoice): Promise<StoredPolicy | null> {
  switch (which.by) {
    case 'active':
      return policies.active();
    case 'id':
      return policies.get(which.id);
    case 'name': {
      const record = await policies.findByName(which.name);
      return record === null ? null : policies.get(record.id);
    }
  }
}

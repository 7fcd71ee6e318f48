import { setTimeout as pause } from 'node:timers/promises';
import { NEVER } from 'rxjs';
import { type AnyActorRef, type AnyMachineSnapshot, createActor, waitFor } from 'xstate';
import { kubernetesMembers, NO_OWNERS } from '#actors/kubernetes/kubernetes-members.js';
import { deniedBy, failedChecks } from '#actors/readiness/node-health.js';
import {
  conditionsOf,
  createStateTimes,
  type NodeView,
  reportOf,
  staleIntegrationsOf,
  supervisedPartsOf,
} from '#actors/readiness/readiness.js';
import { ask } from '#bus/ask.js';
import { createBus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import { ChartRecorder } from '#chart-inspection/chart-recorder.js';
import { clusterOperations } from '#cluster/operations.js';
import { CanaryHealth } from '#cluster/rollout/canary-health.js';
import { enforcedBy } from '#cluster/writes/enforced-by.js';
import type { DatapathStats } from '#contracts/datapath/datapath.js';
import { type ListedMembership, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { ExplainNode } from '#contracts/policy/explain-facts.js';
import type { Address, Packet } from '#contracts/policy/policy-model.js';
import { refusal } from '#contracts/refusal.js';
import { arrivalOf, grantedFor, openFlowOf, trafficOver, translationOf } from '#dataplane/operations.js';
import { lookupsOver } from '#dns/operations.js';
import { ownAddresses } from '#dns/own-addresses.js';
import type { IntegrationSnapshot } from '#kubernetes/operations/integration-status.js';
import { integrationsOver } from '#kubernetes/operations/integrations.js';
import { kubernetesOperations } from '#kubernetes/operations/operations.js';
import { ANALYSIS_BUDGET_MS, ANALYSIS_IDLE_MS } from '#policies/analysis.js';
import { assertionsOver } from '#policies/assertions.js';
import { ACTIVE_BUDGET_MS, DRAFT_BUDGET_MS, explainLane, WAITING_PER_SUBJECT } from '#policies/explain.js';
import { FairQueue, runOrRefuse } from '#policies/fair-queue.js';
import { policyOperations } from '#policies/operations.js';
import { pendingChangesOver } from '#policies/pending-changes.js';
import { standingOf } from '#policies/standing.js';
import { endingWhenIdle } from '#policies/thread/idle-thread.js';
import { createPolicyThread } from '#policies/thread/policy-thread.js';
import type { PolicySurroundings } from '#policies/thread/policy-work.js';
import { servicePlaneStateOver } from '#service-plane/operations.js';
import { CHARTS } from '#statecharts/charts.js';
import type { DataplaneContext } from '#statecharts/dataplane.setup.js';
import { type NodeInput, PARTS, type Part } from '#statecharts/node.chart.js';
import type { PolicyContext } from '#statecharts/policy.setup.js';
import type { ServicePlaneContext } from '#statecharts/service-plane.chart.js';
import { configurationOver } from './configuration.js';
import { EventSwitch } from './event-switch.js';
import { nodeActor } from './node.actor.js';
import { performanceModeOver } from './performance-mode.js';
import { routeMessages } from './router.js';
import type { System, SystemPorts } from './system-contract.js';
import { createWarmStart } from './warm-start.js';

/**
 * The time in milliseconds for which a policy write waits for its response, in addition to the activation
 * timeout. Within it, the commit waits for the disk, and the dataplane may be opened again.
 */
const WRITE_TIMEOUT_MS = 30_000;
/**
 * The interval in milliseconds at which a request with a minimum generation polls the generation in force.
 */
const GENERATION_POLL_MS = 10;
/**
 * The maximum time in milliseconds for which a start with a pending change waits until the datapath is open.
 * The policy in the kernel decides whether the change is reverted before the stored policy is put in force.
 */
const ADOPTION_TIMEOUT_MS = 10_000;

/** Creates the system, and starts the node actor with all its parts. */
export function createSystem(ports: SystemPorts): System {
  const { store, dataplane, dns, servicePlane, fallback, activationTimeoutMs } = ports;
  const cluster = ports.cluster ?? null;
  const inCluster = ports.inCluster ?? null;
  const now = ports.now ?? (() => new Date());
  const createThread = ports.createThread ?? createPolicyThread;
  const writing = ports.writing ?? createThread();
  const explaining = createThread();
  const drafting = createThread();
  const analysing = endingWhenIdle(createThread(), ANALYSIS_IDLE_MS);
  const explainPorts = {
    policies: store.policies,
    active: explainLane(explaining, ACTIVE_BUDGET_MS),
    drafts: explainLane(drafting, DRAFT_BUDGET_MS),
    ownerOf: (address: Address) => owners.ownerOf(address),
  };
  const surroundings: PolicySurroundings = {
    fallback,
    dns: dns !== null,
    servicePlane: servicePlane !== null,
    policesNode: dataplane?.policeLocal ?? false,
    ipv6: dataplane?.ipv6 === 'enforce',
  };
  const bus = createBus<Message>();

  const events = new EventSwitch(dataplane?.datapath ?? null);
  let adoptedGeneration = 0;
  let noteWithheld = (): void => {};
  const withheld = new Promise<void>((resolve) => {
    noteWithheld = resolve;
  });
  let noteAdoption = (): void => {};
  const adopted = new Promise<void>((resolve) => {
    noteAdoption = resolve;
  });
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
  const kubernetes =
    ports.kubernetes == null ? null : kubernetesMembers(ports.kubernetes, ports, () => snapshotOf('policy'));
  const owners = kubernetes?.distribution ?? NO_OWNERS;
  const warmStart =
    servicePlane === null || dataplane?.found === undefined
      ? async () => {}
      : createWarmStart(servicePlane.plane, dataplane.found);
  const logic = nodeActor(bus, {
    policyWrites: {
      ...store,
      integrations: {
        list: async () => {
          const stored = await store.integrations.list();
          const others = [...store.integrations.unreadable, ...(inCluster === null ? [] : [inCluster])];
          return [...stored, ...others.map((name) => ({ name }))];
        },
      },
      thread: writing,
      membership: async (named, options) => kubernetes?.binding.membership(named, options) ?? NOTHING_LISTED,
      surroundings,
      enforced: dataplane !== null,
      assertionBudgetMs: activationTimeoutMs / 2,
      now,
      adoptedGeneration: () => adoptedGeneration,
      hasInterceptCa: () => hasInterceptCa,
      repeats: cluster !== null,
      onCompiled: (policy) => void warmStart(policy),
      beforeRestore: async () => {
        // The kernel may have reverted the unconfirmed change of an earlier process; if not, the kernel has
        // its deadline. So wait until the datapath is open.
        if (dataplane === null || cluster !== null || !(await changes.isPending())) return;
        await Promise.race([adopted, pause(ADOPTION_TIMEOUT_MS, undefined, { ref: false })]);
      },
      restoreFailed: ports.restoreFailed,
      generationInForce: () => generation,
      chooseNodes: cluster === null ? null : (share) => cluster.rollouts.chooseNodes(share),
    },
    dataplane:
      dataplane === null
        ? null
        : {
            ...dataplane,
            adopted: (adoption) => changes.adopted(adoption).finally(noteAdoption),
            ...(cluster === null && { standing: (staged: number) => standingOf(store.policies, staged) }),
            beforeClose: closePlanes,
            members: kubernetes?.distribution ?? null,
          },
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
      kubernetesThread: kubernetes?.binding ?? null,
    },
    integrations: kubernetes?.binding ?? { names: NEVER, reflectors: NEVER },
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
  const recorder = new ChartRecorder(now, Object.values(CHARTS));
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
  // One message changes the snapshots of several actors. Read the states once, after all of these changes.
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
  const reaches = async (wanted: number, withinMs: number): Promise<boolean> => {
    for (const until = performance.now() + withinMs; generation < wanted; await pause(GENERATION_POLL_MS))
      if (performance.now() >= until) return false;
    return true;
  };
  const changes = pendingChangesOver({
    policies: store.policies,
    rollouts: cluster?.rollouts ?? null,
    reaches,
    confirmed: async (reverts) => dataplane?.datapath.confirm(reverts),
    reverted: ({ generation: reverted }, reason) =>
      bus.publish({ type: 'policy.change_ended', generation: reverted, outcome: 'revert', reason }),
    now,
  });
  const configuration = configurationOver(bus, {
    canReload: () => ports.reload != null && stopping === undefined,
    activationTimeoutMs,
    now,
  });
  bus.messages.subscribe((message) => {
    if (message.type === 'policy.activated') {
      generation = message.generation;
      cluster?.announce(generation);
      kubernetes?.activated(message);
    }
    if (message.type === 'program.rejected' && cluster === null) void noteIfWithheld();
    if (message.type === 'dataplane.adopted') adoptedGeneration = message.generation;
  });
  const outdated = kubernetes?.distribution.outdated.subscribe(() => bus.publish({ type: 'membership.changed' }));
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
    outdated?.unsubscribe();
    sampling?.unsubscribe();
    proposed?.unsubscribe();
    await Promise.all([
      writing.close(),
      explaining.close(),
      drafting.close(),
      analysing.close(),
      closePlanes(),
      kubernetes?.close(),
    ]);
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
      ipv6: dataplane?.ipv6 ?? 'drop',
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
  const enforcedInstead = async (): Promise<number | null> =>
    adoptedGeneration > (await store.policies.reservedGeneration()) ? adoptedGeneration : null;
  /**
   * Ends the start of the node if the kernel enforces a newer policy than the store has, because the stored
   * policy is then not put in force. If the store cannot be read, the start ends at its deadline.
   */
  const noteIfWithheld = async (): Promise<void> => {
    if ((await enforcedInstead().catch(() => null)) !== null) noteWithheld();
  };
  // Explain a draft with the Kubernetes selectors as they are resolved now, and the active policy with the
  // selectors as they were resolved at its compilation.
  const membershipFor = (source: Address, ofDraft: boolean): ListedMembership => {
    const inForce = (snapshotOf('policy')?.context as PolicyContext | undefined)?.inForce;
    return (
      kubernetes?.distribution.listedFor(source, ofDraft ? undefined : inForce?.inspection.scope) ?? NOTHING_LISTED
    );
  };
  /**
   * Whether a policy write is being put in force. The new policy may name other integrations than the policy
   * in force.
   */
  const isWriting = (): boolean => {
    const context = snapshotOf('policy')?.context as PolicyContext | undefined;
    const isStored = context?.current?.write.dryRun === false;
    return isStored || context?.rehearsed != null || context?.proposal != null;
  };
  // This queue runs one dry run at a time. Clients with the role `readonly` can also send dry runs, and a
  // policy write must wait for at most one of them.
  const dryRuns = new FairQueue(WAITING_PER_SUBJECT);
  const analysis = {
    policies: store.policies,
    lane: explainLane(analysing, ANALYSIS_BUDGET_MS),
    surroundings,
    seen: ports.seenFlows === undefined ? null : { node: ports.nodeId ?? '', flows: ports.seenFlows },
  };
  const policies = policyOperations({
    policies: store.policies,
    generation: () => generation,
    reaches,
    write: async (write) => {
      if (stopped) return refusal('draining', 'the node is shut down');
      const request = () => ask(bus, 'policy.write', { write }, activationTimeoutMs + WRITE_TIMEOUT_MS);
      if (write.dryRun) return runOrRefuse(dryRuns, write.author, request);
      const outcome = await request();
      // Before the write responds, wait until the new policy has decided the open inspected connections too.
      await inspecting.decided();
      if (write.wait === undefined || cluster === null) return outcome;
      return enforcedBy(outcome, write.wait, async () => (await cluster.status()).members);
    },
    group: { policies: store.policies, thread: writing, surroundings },
    explain: {
      ...{ ...explainPorts, surroundings, node: nodeNow, membership: membershipFor, enforcedInstead },
      unforwardedReason: (name) => dns?.unforwardedReason(name) ?? null,
    },
    analysis,
    describe: () => ({
      ...{ policies: store.policies, createThread, surroundings },
      membership: kubernetes?.distribution.listed(),
    }),
  });
  const integrations = integrationsOver({
    store: store.integrations,
    inUse: () => {
      const context = snapshotOf('policy')?.context as PolicyContext | undefined;
      return context?.inForce?.integrations ?? null;
    },
    isChangePending: async () => isWriting() || changes.isPending(),
    inCluster,
    accessWarnings: ports.kubernetes?.accessWarnings ?? (async () => []),
  });
  const watched =
    kubernetes === null || ports.kubernetes == null
      ? null
      : {
          source: ports.kubernetes.source,
          store: store.integrations,
          snapshotOf: (name: string) => {
            const children = snapshotOf('integrations')?.children as
              | Record<string, AnyActorRef | undefined>
              | undefined;
            return children?.[name]?.getSnapshot() as IntegrationSnapshot | undefined;
          },
          members: () => kubernetes.distribution.counts,
          now,
        };
  const hasStarted = (snapshot: { matches(state: object): boolean }) => !snapshot.matches({ phase: 'starting' });
  return {
    bus,
    started: Promise.race([waitFor(node, hasStarted), withheld]).then(() => {}),
    policies,
    assertions: assertionsOver({ store: store.assertions, analysis }),
    pendingChange: changes,
    performanceMode: performanceModeOver(bus, store.settings.source, () => partOf('performanceMode')),
    configuration,
    integrations,
    cluster: clusterOperations({
      cluster,
      nodeId: ports.nodeId ?? '',
      generation: () => generation,
      adoptedGeneration: () => adoptedGeneration,
      recovered: () => bus.publish({ type: 'cluster.recovered' }),
    }),
    readiness: () => {
      noteTimes();
      const seen = view();
      return reportOf(conditionsOf(seen), supervisedPartsOf(seen), staleIntegrationsOf(seen), (name) =>
        times.since(name),
      );
    },
    kubernetes: kubernetesOperations(integrations, (id, group) => policies.readGroup(id, group), watched),
    ownerOf: (address) => owners.ownerOf(address),
    owners,
    enforcement: () => {
      const known = snapshotOf('dataplane')?.context as DataplaneContext | undefined;
      const sinceMs = known?.inForceSinceMs ?? null;
      const inForce = isEngaged() ? (known?.inForce?.generation ?? known?.adopted ?? 0) : 0;
      return {
        enforcing: dataplane === null ? false : isEngaged() ? inForce > 0 : null,
        generation: inForce > 0 ? inForce : null,
        since: sinceMs === null ? null : new Date(sinceMs).toISOString(),
      };
    },
    enforcedInstead,
    datapathStats,
    traffic,
    lookups,
    inspecting,
    onEventSource: (listener) => dataplane?.datapath.onEventSource(listener),
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

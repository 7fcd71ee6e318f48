import type { AnyMachineSnapshot } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message, PerformanceMode, PerformanceModeWrite } from '#bus/bus-messages.js';
import type { PolicyOutcome, PolicyWrite, Refusal } from '#bus/policy-requests.js';
import type { Statecharts } from '#bus/statecharts.js';
import type { Cluster } from '#cluster/cluster.js';
import type { LastReload, ReloadReport, ReloadRequest } from '#contracts/config-reload.js';
import type { Adoption, Datapath, DatapathStats } from '#contracts/datapath.js';
import type { EventSource } from '#contracts/event-source.js';
import type { ExplainNode } from '#contracts/explain-facts.js';
import type { KubernetesSource } from '#contracts/kubernetes-source.js';
import type { PolicyRecord, StoredPolicy } from '#contracts/policy-record.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { DnsProxy } from '#dns/dns-proxy.js';
import type { Explained } from '#policy/explain/explain.js';
import type { MemberRecord } from '#policy/model/member-record.js';
import type { PolicyThread } from '#policy-thread/policy-thread.js';
import type { PolicySurroundings } from '#policy-thread/policy-work.js';
import type { ClusterRequests } from '#requests/cluster-requests.js';
import type { ExplainQuestion } from '#requests/explanation.js';
import type { Integrations, IntegrationsPorts } from '#requests/integrations.js';
import type { KubernetesParts } from '#requests/kubernetes-requests.js';
import type { Traffic } from '#requests/live-traffic.js';
import type { NodeLookups } from '#requests/node-lookups.js';
import type { PendingChanges } from '#requests/pending-changes.js';
import type { PolicyDescription } from '#requests/policy-description.js';
import type { PolicyChoice } from '#requests/read-policy.js';
import type { ServicePlaneState } from '#requests/service-plane-state.js';
import type { KubernetesObjectsStore } from '#store/kubernetes-objects-store.js';
import type { IntegrationStore, PolicyStore, SettingsStore } from '#store/store-types.js';
import type { DataplanePorts } from './dataplane.actor.js';
import type { MemberDistribution } from './member-distribution.js';
import type { ReadinessReport } from './readiness.js';
import type { ReloadPorts } from './reload.actor.js';
import type { ServicePlanePorts } from './service-plane.actor.js';

/** The Kubernetes thread and its surroundings, on a node that can have integrations. */
export type KubernetesPorts = {
  readonly source: KubernetesSource;
  readonly accessWarnings: IntegrationsPorts['accessWarnings'];
  /** The members of the node. DNS proxy and service plane read it when their threads start. */
  readonly record: MemberRecord;
  readonly trouble: (message: string, failure: unknown) => void;
  /** The time before the selectors of a dry run are released, see `KubernetesBinding`. Tests shorten it. */
  readonly releaseMs?: number;
};

/** The objects of Kubernetes that own addresses. */
export type AddressOwners = Pick<MemberDistribution, 'ownerOf' | 'owners' | 'ownersChanged' | 'addressesShared'>;

export type SystemPorts = {
  readonly store: {
    readonly policies: PolicyStore;
    readonly settings: SettingsStore;
    readonly integrations: IntegrationStore;
    readonly kubernetesObjects: KubernetesObjectsStore;
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
    readonly warned?: DataplanePorts['warned'];
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
  /** The setting `kubernetes.in_cluster.name`. Null or omitted: there is no such integration. */
  readonly inCluster?: string | null;
  /** The Kubernetes thread. Null or omitted: no selector is resolved. */
  readonly kubernetes?: KubernetesPorts | null;
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

/** All functions of the running node that the API uses. */
export type System = {
  /**
   * Resolves when the stored policy is in force, after 30 s without that, or when the node is shut down. On a
   * node without a cluster, resolves also when the kernel enforces a newer generation than the store has, for
   * example after a restore: the stored policy is then not put in force until an operator writes.
   */
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
  explain(question: ExplainQuestion, subject: string): Promise<Explained | Refusal>;
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
  /** Null if the node does not watch Kubernetes. */
  readonly kubernetes: KubernetesParts | null;
  readonly owners: AddressOwners;
  readonly pendingChange: PendingChanges;
  readonly cluster: ClusterRequests;
  readiness(): ReadinessReport;
  /**
   * Returns the time since when the kernel enforces the generation in force, also if an earlier process put
   * it in force: ISO 8601, UTC. Null if nothing is in force, or if the time is not known.
   */
  inForceSince(): string | null;
  /**
   * Returns the generation that the kernel enforces although the data folder contains no generation as new:
   * the folder is an older or another one, and its active policy is not in force. Null otherwise.
   */
  enforcedInstead(): Promise<number | null>;
  /** Returns the counters of the datapath; null while the datapath is not open. */
  datapathStats(): Promise<DatapathStats | null>;
  /**
   * Passes the event source of the datapath to `listener`, see `Datapath.onEventSource`. Has no effect on a
   * node without a dataplane.
   */
  onEventSource(listener: (source: EventSource) => void): void;
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

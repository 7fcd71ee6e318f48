import type { AnyMachineSnapshot } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { Cluster } from '#cluster/cluster.js';
import type { SeenFlows } from '#contracts/analysis/seen-flows.js';
import type { Adoption, Datapath, DatapathStats } from '#contracts/datapath/datapath.js';
import type { EventSource } from '#contracts/datapath/event-source.js';
import type { KubernetesSource } from '#contracts/kubernetes/kubernetes-source.js';
import type { ExplainNode } from '#contracts/policy/explain-facts.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { DnsProxy } from '#dns/dns-proxy.js';
import type { MemberDistribution } from '#kubernetes/distribution/member-distribution.js';
import type { IntegrationsPorts } from '#kubernetes/operations/integrations.js';
import type { PolicyThread } from '#policies/thread/policy-thread.js';
import type { PolicySurroundings } from '#policies/thread/policy-work.js';
import type { MemberRecord } from '#policy/model/sources/member-record.js';
import type { ServicePlaneState } from '#service-plane/operations.js';
import type { KubernetesObjectsStore } from '#store/settings/kubernetes-objects-store.js';
import type { AssertionStore, IntegrationStore, PolicyStore, SettingsStore } from '#store/store-types.js';
import type { DataplanePorts } from './dataplane.actor.js';
import type { Operations } from './operations.js';
import type { ReloadPorts } from './reload.actor.js';
import type { ServicePlanePorts } from './service-plane.actor.js';

/** The Kubernetes thread, and what it needs from other parts, on a node that can have integrations. */
export type KubernetesPorts = {
  readonly source: KubernetesSource;
  readonly accessWarnings: IntegrationsPorts['accessWarnings'];
  /**
   * The members of Kubernetes selectors: addresses. The threads of the DNS proxy and of the service plane
   * read them when they start.
   */
  readonly record: MemberRecord;
  readonly trouble: (message: string, failure: unknown) => void;
  /**
   * The time in milliseconds for which the Kubernetes selectors of a dry run are still watched, see
   * `KubernetesBinding`. Tests shorten it.
   */
  readonly releaseMs?: number;
};

export type AddressOwners = Pick<MemberDistribution, 'ownerOf' | 'owners' | 'ownersChanged' | 'addressesShared'>;

export type SystemPorts = {
  readonly store: {
    readonly policies: PolicyStore;
    readonly settings: SettingsStore;
    readonly integrations: IntegrationStore;
    readonly assertions: AssertionStore;
    readonly kubernetesObjects: KubernetesObjectsStore;
  };
  /** The datapath and its settings; null if the configuration has no `dataplane` section. */
  readonly dataplane: {
    readonly datapath: Datapath;
    readonly interfaces: readonly string[];
    /** Whether the datapath also classifies packets to and from the node itself. */
    readonly policeLocal?: boolean;
    /** The setting `dataplane.ipv6`; `drop` if undefined. */
    readonly ipv6?: ExplainNode['ipv6'];
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
  /** Called with the reason why the stored policy could not be put in force; the node tries again. */
  readonly restoreFailed?: (failure: unknown) => void;
  /** The DNS proxy; null if the configuration has no `dns` section. */
  readonly dns: DnsProxy | null;
  /**
   * The service plane (TLS and HTTP inspection); null if the configuration has no `service_plane` section.
   */
  readonly servicePlane: ServicePlanePorts | null;
  /** The setting `kubernetes.in_cluster.name`. Null or omitted: there is no such integration. */
  readonly inCluster?: string | null;
  /** The Kubernetes thread. Null or omitted: no Kubernetes selector is resolved. */
  readonly kubernetes?: KubernetesPorts | null;
  /** The cluster; null if the configuration has no `cluster` section. */
  readonly cluster?: Cluster | null;
  /**
   * Parts that the node actor starts. `observer`: the observer thread. `policyFile`: the part that applies
   * `policy.file` and its changes. Null or omitted: the node does not have the part.
   */
  readonly observer?: SupervisedPart | null;
  /** Returns the flows that this node has seen; null if it records none. */
  readonly seenFlows?: () => Promise<SeenFlows | null>;
  readonly policyFile?: SupervisedPart | null;
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

/** The running node: its operations, and what the other parts of the process use. */
export type System = Operations & {
  /**
   * Resolves when the stored policy is in force, after 30 s without that, or when the node is shut down. On a
   * node without a cluster, resolves also when the kernel enforces a newer generation than the store has, for
   * example after a restore: the stored policy is then not put in force until an operator writes.
   */
  readonly started: Promise<void>;
  readonly bus: Bus<Message>;
  readonly owners: AddressOwners;
  readonly inspecting: ServicePlaneState;
  /** Returns the counters of the datapath; null while the datapath is not open. */
  datapathStats(): Promise<DatapathStats | null>;
  /** See `Datapath.onEventSource`. Has no effect on a node without a dataplane. */
  onEventSource(listener: (source: EventSource) => void): void;
  /**
   * Sets whether the BPF program also sends flow events while performance mode is enabled. Initially, it
   * sends them.
   */
  setFlowsWanted(wanted: boolean): Promise<void>;
  /** Returns the XState snapshots of all running actors; the key is the name of the actor. */
  snapshots(): Readonly<Record<string, AnyMachineSnapshot>>;
  /**
   * Finishes the current policy write and closes the datapath. The BPF programs in the kernel continue to
   * enforce. A repeated call has no further effect.
   */
  shutdown(): Promise<void>;
};

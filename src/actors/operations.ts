import type { PerformanceMode, PerformanceModeWrite } from '#bus/bus-messages.js';
import type { Statecharts } from '#bus/statecharts.js';
import type { ClusterOperations } from '#cluster/operations.js';
import type { LastReload, ReloadReport, ReloadRequest } from '#contracts/config/config-reload.js';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { ReadinessReport } from '#contracts/readiness.js';
import type { Refusal } from '#contracts/refusal.js';
import type { Traffic } from '#dataplane/operations.js';
import type { NodeLookups } from '#dns/operations.js';
import type { Integrations } from '#kubernetes/operations/integrations.js';
import type { KubernetesOperations } from '#kubernetes/operations/operations.js';
import type { AssertionOperations } from '#policies/assertions.js';
import type { PolicyOperations } from '#policies/operations.js';
import type { PendingChanges } from '#policies/pending-changes.js';
import type { SettingsStore } from '#store/store-types.js';

/**
 * The policy that the kernel enforces. `enforcing`: null while this process has not opened the datapath, or
 * has lost it. The kernel then enforces what it did before. `generation`: null unless `enforcing` is true.
 * `since`: since when the kernel enforces the generation in force, also if an earlier process put it in
 * force: ISO 8601, UTC. Null if nothing is in force, or if the time is not known.
 */
export type Enforcement = {
  readonly enforcing: boolean | null;
  readonly generation: number | null;
  readonly since: string | null;
};

/**
 * The operations of the parts that the node actor supervises. Each is declared beside its implementation.
 * An operation that the node cannot do now returns a `Refusal`.
 */
export type Operations = {
  readonly policies: PolicyOperations;
  /** The assertions: statements about flows that must be true after each write of the policy in force. */
  readonly assertions: AssertionOperations;
  /** The pending change: a policy write that is reverted unless an operator confirms it. */
  readonly pendingChange: PendingChanges;
  readonly performanceMode: {
    /** Where performance mode is stored: on this node, or in the store that the nodes of a cluster share. */
    readonly source: SettingsStore['source'];
    read(): Promise<PerformanceMode>;
    write(write: PerformanceModeWrite): Promise<PerformanceMode | Refusal>;
  };
  readonly configuration: {
    /** Reloads the configuration file. With `dryRun`, returns what would change, and changes nothing. */
    reload(request: ReloadRequest): Promise<ReloadReport | Refusal>;
    /** The last reload that was no dry run; null if there was none since the start of the node. */
    lastReload(): LastReload | null;
  };
  readonly integrations: Integrations;
  readonly kubernetes: KubernetesOperations;
  readonly cluster: ClusterOperations;
  readonly traffic: Traffic;
  readonly lookups: NodeLookups;
  /** Returns the Kubernetes object that owns an address now; null if none does. */
  readonly ownerOf: (address: Address) => OwnerName | null;
  readiness(): ReadinessReport;
  enforcement(): Enforcement;
  /**
   * Returns the generation that the kernel enforces if it is newer than every generation in the data folder,
   * because the folder was restored or replaced. The active policy of the folder is then not in force.
   * Otherwise returns null.
   */
  enforcedInstead(): Promise<number | null>;
  /** The recorded state transitions of all actors. The record contains no secrets. */
  readonly debug: Statecharts;
};

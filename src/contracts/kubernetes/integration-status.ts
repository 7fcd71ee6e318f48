import type { KubernetesSource } from '#contracts/policy/policy-document.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { OwnerName } from './address-owner.js';
import type { IntegrationFacts, OwnedNetwork } from './kubernetes-source.js';

/**
 * The states of an integration: those of `statecharts/kubernetes.chart.ts`, and `failed` after a bug.
 * `unused`: no selector of the policy names the integration.
 */
export const INTEGRATION_STATES = [
  'unused',
  'connecting',
  'listing',
  'watching',
  'silent',
  'backing_off',
  'refused.unauthorized',
  'refused.forbidden',
  'failed',
] as const;
export type IntegrationState = (typeof INTEGRATION_STATES)[number];

export type IntegrationStatus = {
  readonly name: string;
  readonly state: IntegrationState;
  /** The time when the state began: ISO 8601, UTC. Null before the first event. */
  readonly since: string | null;
  /** The latest failure. It stays after the integration (a Kubernetes API server) has recovered. */
  readonly lastError: { readonly reflector: string; readonly reason: string; readonly at: string } | null;
  readonly objects: IntegrationFacts['objects'];
  readonly selectors: readonly {
    readonly selector: KubernetesSource;
    readonly resolved: boolean;
    readonly addresses: number;
    readonly networks: number;
  }[];
  readonly warnings: readonly { readonly code: string; readonly message: string }[];
  /** Whether the objects in force may be older than the objects on the server. */
  readonly stale: boolean;
};

/** The addresses and networks that the selectors of a source group select. */
export type GroupMembers = {
  /** The networks of pods that the selectors select, on the first page only. */
  readonly networks: readonly OwnedNetwork[];
  readonly total: number;
  /** The selected addresses of the page, ascending and IPv4 first, each with the object that owns it. */
  readonly members: readonly { readonly address: Address; readonly owner: OwnerName }[];
  /** The last address of the page if more addresses follow; otherwise null. */
  readonly next: Address | null;
};

/** The integrations (Kubernetes API servers) of a node, and the addresses of their objects in its kernel. */
export type KubernetesStats = {
  readonly integrations: readonly {
    readonly name: string;
    readonly state: IntegrationState;
    /** The number of objects by kind; null if the Kubernetes thread does not respond. */
    readonly objects: IntegrationFacts['objects'] | null;
    /**
     * The time in seconds since when the objects may be older than the objects on the server; 0 if they are
     * current.
     */
    readonly staleSeconds: number;
  }[];
  /** The number of addresses that Kubernetes objects own. */
  readonly members: number;
  /** The number of addresses that are deny-only (`DENY_ONLY_MEMBER`) because the map of members is full. */
  readonly membersRefused: number;
};

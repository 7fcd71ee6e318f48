import type { Warning } from '#contracts/policy/policy-problem.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { orRefusal } from '#store/or-refusal.js';
import type { Integration, IntegrationRecord, IntegrationStore } from '#store/store-types.js';
import { expiryWarnings } from './token-expiry.js';

/**
 * A stored integration (connection to a Kubernetes API server) as the API returns it. The service-account
 * token is omitted, because it is secret.
 */
export type StoredIntegrationView = Omit<IntegrationRecord, 'service_account_token'> & { readonly in_cluster: false };
/** The integration of the setting `kubernetes.in_cluster`, which the API cannot change. */
type InClusterView = { readonly name: string; readonly kind: 'kubernetes'; readonly in_cluster: true };
export type IntegrationView = StoredIntegrationView | InClusterView;

type IntegrationWrite = {
  readonly integration: Integration;
  readonly author: string;
  /**
   * The write fails with `precondition_failed` if the stored integration has another revision; 0 means that
   * no integration is stored. If omitted, any revision is accepted.
   */
  readonly expectedRevision?: number;
  /** Whether to return the result of the write without storing anything. */
  readonly dryRun?: boolean;
  /** Whether to try the connection to the API server, and to warn if it fails. */
  readonly tryAccess: boolean;
};
type IntegrationWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  readonly integration: StoredIntegrationView;
  readonly warnings: readonly Warning[];
};
type IntegrationRemoval = { readonly name: string; readonly expectedRevision?: number; readonly dryRun?: boolean };

export type Integrations = {
  list(): Promise<readonly IntegrationView[]>;
  read(name: string): Promise<IntegrationView | null>;
  write(write: IntegrationWrite): Promise<IntegrationWritten | Refusal>;
  remove(removal: IntegrationRemoval): Promise<{ readonly kind: 'deleted' } | Refusal>;
};

export type IntegrationsPorts = {
  readonly store: IntegrationStore;
  /**
   * Returns the names of the integrations in the active policy, or null while the active policy is not
   * loaded. An integration (a Kubernetes API server) in the active policy cannot be removed.
   */
  readonly inUse: () => readonly string[] | null;
  readonly isChangePending: () => Promise<boolean>;
  /** The setting `kubernetes.in_cluster.name`: a stored integration with this name is not shown. */
  readonly inCluster: string | null;
  /** Tries the connection to the API server, for at most 5 s. Returns a warning for each fault. */
  readonly accessWarnings: (integration: Integration) => Promise<readonly Warning[]>;
};

export function integrationsOver({
  store,
  inUse,
  isChangePending,
  inCluster,
  accessWarnings,
}: IntegrationsPorts): Integrations {
  return {
    list: async () => {
      const stored = (await store.list()).filter(({ name }) => name !== inCluster).map(viewOf);
      const all = inCluster === null ? stored : [...stored, inClusterView(inCluster)];
      return all.sort((a, b) => (a.name < b.name ? -1 : 1));
    },
    read: async (name) => {
      if (name === inCluster) return inClusterView(name);
      const record = await store.get(name);
      return record === null ? null : viewOf(record);
    },
    write: ({ integration, author, expectedRevision, dryRun, tryAccess }) =>
      orRefusal(async () => {
        if (integration.name === inCluster) return readOnly(inCluster);
        const allWarnings = async () => [
          ...expiryWarnings(integration.service_account_token, Date.now()),
          ...(tryAccess ? await accessWarnings(integration) : []),
        ];
        if (dryRun) {
          const before = await store.get(integration.name);
          const at = new Date().toISOString();
          const revision = (before?.revision ?? 0) + 1;
          const stamps = { revision, created_at: before?.created_at ?? at, updated_at: at, updated_by: author };
          const view = viewOf({ ...integration, ...stamps });
          return { kind: 'written', created: before === null, integration: view, warnings: await allWarnings() };
        }
        const record = await store.put(integration, author, expectedRevision);
        const created = record.revision === 1;
        return { kind: 'written', created, integration: viewOf(record), warnings: await allWarnings() };
      }),
    remove: ({ name, expectedRevision, dryRun }) =>
      orRefusal(async () => {
        if (name === inCluster) return readOnly(name);
        const names = inUse();
        if (names === null)
          return refusal('feature_unavailable', 'the node has not read yet which integrations the stored policy uses');
        if (names.includes(name))
          return refusal('integration_in_use', `the active policy uses the integration ${name}`);
        // During a pending change, other nodes may enforce the former policy, and this node may enforce it
        // after a revert. That policy may use the integration (a Kubernetes API server).
        if (await isChangePending())
          return refusal('change_pending', 'a policy change is pending, so that no integration can be removed');
        const removed = dryRun ? (await store.get(name)) !== null : await store.remove(name, expectedRevision);
        return removed ? { kind: 'deleted' } : refusal('not_found', `there is no integration named ${name}`);
      }),
  };
}

function viewOf({ service_account_token: _token, ...shown }: IntegrationRecord): StoredIntegrationView {
  return { ...shown, in_cluster: false };
}

const inClusterView = (name: string): InClusterView => ({ name, kind: 'kubernetes', in_cluster: true });

const readOnly = (name: string): Refusal =>
  refusal('integration_read_only', `the integration ${name} is defined by kubernetes.in_cluster of the configuration`);

import type { StateValue } from 'xstate';
import {
  INTEGRATION_STATES,
  type IntegrationState,
  type IntegrationStatus,
} from '#contracts/kubernetes/integration-status.js';
import type { IntegrationFacts, KubernetesSource } from '#contracts/kubernetes/kubernetes-source.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { reasonOf } from '#files/system-failure.js';
import { sourceOf } from '#policy/model/sources/selector.js';
import type { KubernetesContext } from '#statecharts/kubernetes.chart.js';
import type { IntegrationStore } from '#store/store-types.js';
import type { Integrations } from './integrations.js';
import { expiryWarnings } from './token-expiry.js';

export type IntegrationSnapshot = {
  readonly status: string;
  readonly value: StateValue;
  readonly context: KubernetesContext;
};

export type IntegrationStatusPorts = {
  readonly integrations: Pick<Integrations, 'read'>;
  readonly store: Pick<IntegrationStore, 'get'>;
  /**
   * Returns the snapshot of the statechart actor of an integration (a Kubernetes API server); undefined if it
   * has no actor.
   */
  readonly snapshotOf: (name: string) => IntegrationSnapshot | undefined;
  readonly facts: KubernetesSource['facts'];
  readonly now: () => Date;
};

/**
 * Returns a function that reads the status of an integration; it resolves with null if there is no such
 * integration.
 */
export function integrationStatusOver({ integrations, store, snapshotOf, facts, now }: IntegrationStatusPorts) {
  return async (name: string): Promise<IntegrationStatus | Refusal | null> => {
    const integration = await integrations.read(name);
    if (integration === null) return null;
    let found: IntegrationFacts;
    try {
      found = await facts(name);
    } catch (failure) {
      return refusal('feature_unavailable', `the Kubernetes thread does not respond: ${reasonOf(failure)}`);
    }
    const token = integration.in_cluster ? undefined : (await store.get(name))?.service_account_token;
    const expiry = token === undefined ? [] : expiryWarnings(token, now().getTime());
    const snapshot = snapshotOf(name);
    return {
      name,
      state: snapshot === undefined ? 'unused' : stateOf(snapshot),
      since: snapshot?.context.since ?? null,
      lastError: snapshot?.context.lastError ?? null,
      objects: found.objects,
      selectors: found.selectors.map(({ key, resolved, addresses, networks }) => ({
        selector: sourceOf(key),
        resolved,
        addresses,
        networks,
      })),
      warnings: [...found.warnings, ...expiry.map(({ code, message }) => ({ code, message }))],
      stale: isStale(snapshot, found),
    };
  };
}

/** Returns the state of an integration (a Kubernetes API server) as the API and the metrics show it. */
export function stateOf({ status, value }: Pick<IntegrationSnapshot, 'status' | 'value'>): IntegrationState {
  // An actor that died keeps the value of its last state.
  if (status !== 'active') return 'failed';
  const state = textOf(value);
  return INTEGRATION_STATES.find((known) => known === state) ?? 'failed';
}

function textOf(value: StateValue): string {
  if (typeof value === 'string') return value;
  return (
    Object.entries(value).map(([parent, child]) => `${parent}.${child === undefined ? '' : textOf(child)}`)[0] ?? ''
  );
}

function isStale(snapshot: IntegrationSnapshot | undefined, { objects }: IntegrationFacts): boolean {
  if (snapshot === undefined || snapshot.context.staleSince === null) return false;
  return objects.pods + objects.nodes + objects.namespaces > 0;
}

import { NEVER } from 'rxjs';
import type { AnyMachineSnapshot } from 'xstate';
import type { AddressOwners, KubernetesPorts, SystemPorts } from '#actors/system-contract.js';
import type { Fact } from '#bus/bus-messages.js';
import { MemberDistribution } from '#kubernetes/distribution/member-distribution.js';
import { KubernetesBinding } from './kubernetes-binding.js';

/**
 * The parts of the main thread that process the members of Kubernetes selectors. `binding` runs the
 * Kubernetes thread, which sends the members. `distribution` passes them to the datapath, the DNS proxy and
 * the service plane.
 */
export type KubernetesMembers = {
  readonly binding: KubernetesBinding;
  readonly distribution: MemberDistribution;
  /**
   * Passes the selectors of an activated policy to `binding`, and which of them are resolved to
   * `distribution`.
   */
  activated(policy: Extract<Fact, { type: 'policy.activated' }>): void;
  close(): Promise<void>;
};

/** The owners of addresses on a node that watches no Kubernetes cluster: no address has one. */
export const NO_OWNERS: AddressOwners = {
  ownerOf: () => null,
  owners: () => ({ replaces: true, changes: [], sinceMs: 0 }),
  ownersChanged: NEVER,
  addressesShared: NEVER,
};

/** The states of the policy statechart in which the stored policy is in force. */
const AT_REST = ['active', 'unresolved', 'none_active', 'never_activated'] as const;

/** Creates `binding` and `distribution`. `policyChart` returns the snapshot of the policy statechart. */
export function kubernetesMembers(
  { source, record, trouble, releaseMs }: KubernetesPorts,
  {
    store,
    dataplane,
    dns,
    servicePlane,
    inCluster = null,
  }: Pick<SystemPorts, 'store' | 'dataplane' | 'dns' | 'servicePlane' | 'inCluster'>,
  policyChart: () => AnyMachineSnapshot | undefined,
): KubernetesMembers {
  const distribution = new MemberDistribution({
    record,
    datapath: dataplane?.datapath ?? null,
    dns,
    servicePlane: servicePlane?.plane ?? null,
    store: (objects) => store.kubernetesObjects.write(objects),
    trouble,
  });
  const binding = new KubernetesBinding({
    source,
    integrations: store.integrations,
    inCluster,
    stored: async () => {
      await distribution.flushObjects();
      return store.kubernetesObjects.read();
    },
    distribution,
    isAtRest: () => AT_REST.some((activation) => policyChart()?.matches({ activation, writing: 'idle' }) === true),
    releaseMs,
  });
  return {
    binding,
    distribution,
    activated: ({ generation, selectors, inspection }) => {
      binding.setSelectors(selectors);
      distribution.activated(generation, selectors.length === 0 ? null : inspection.scope);
    },
    close: async () => {
      await binding.close();
      await distribution.close();
    },
  };
}

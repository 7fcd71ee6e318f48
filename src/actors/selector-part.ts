import { NEVER } from 'rxjs';
import type { AnyMachineSnapshot } from 'xstate';
import type { Fact } from '#bus/bus-messages.js';
import { MemberDistribution } from './member-distribution.js';
import { SelectorMembers } from './selector-members.js';
import type { AddressOwners, KubernetesPorts, SystemPorts } from './system-contract.js';

/** The members of Kubernetes selectors: where they come from, and where they go. */
export type SelectorPart = {
  readonly members: SelectorMembers;
  readonly distribution: MemberDistribution;
  /** Passes the selectors and the scope of an activated policy to `members` and `distribution`. */
  activated(policy: Extract<Fact, { type: 'policy.activated' }>): void;
  close(): Promise<void>;
};

/** The owners of a node that watches no Kubernetes cluster. */
export const NO_OWNERS: AddressOwners = {
  ownerOf: () => null,
  owners: () => ({ replaces: true, changes: [], sinceMs: 0 }),
  ownersChanged: NEVER,
};

/** The states of the policy chart in which the policy that the store wants is in force. */
const AT_REST = ['active', 'unresolved', 'none_active', 'never_activated'] as const;

/** `policyChart` returns the snapshot of the policy chart. */
export function selectorPart(
  { source, record, trouble, releaseMs }: KubernetesPorts,
  {
    store,
    dataplane,
    dns,
    servicePlane,
    inCluster = null,
  }: Pick<SystemPorts, 'store' | 'dataplane' | 'dns' | 'servicePlane' | 'inCluster'>,
  policyChart: () => AnyMachineSnapshot | undefined,
): SelectorPart {
  const distribution = new MemberDistribution({
    record,
    datapath: dataplane?.datapath ?? null,
    dns,
    servicePlane: servicePlane?.plane ?? null,
    store: (objects) => store.kubernetesObjects.write(objects),
    trouble,
  });
  const members = new SelectorMembers({
    source,
    integrations: store.integrations,
    inCluster,
    stored: () => store.kubernetesObjects.read(),
    distribution,
    isAtRest: () => AT_REST.some((activation) => policyChart()?.matches({ activation, writing: 'idle' }) === true),
    releaseMs,
  });
  return {
    members,
    distribution,
    activated: ({ generation, selectors, inspection }) => {
      members.setSelectors(selectors);
      distribution.activated(generation, selectors.length === 0 ? null : inspection.scope);
    },
    close: async () => {
      distribution.close();
      await members.close();
    },
  };
}

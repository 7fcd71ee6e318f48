import type { Address, Prefix } from '#contracts/policy/policy-model.js';
import type { SelectorIndex } from '#kubernetes/selectors/selector-index.js';
import { unknownNodesOf } from '#kubernetes/selectors/selector-resolution.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';
import { mayClaim } from './claimable.js';
import { claimedAddresses } from './claims.js';
import type { IntegrationObjects } from './integration-objects.js';
import type { AddressOwner } from './owner-names.js';

/**
 * - `host_network_skipped`: a selector selects pods that use the network of their node. Their address is
 *   ignored, because all processes of the node have that address. `first`: the name of one of these pods.
 * - `pods_not_closed`: no selector selects a new pod until its status arrives. Until then its packets are not
 *   denied, because the pod networks, or the pods of all namespaces, are not known.
 * - `node_unknown`: only the pods of the node `node` are watched, but the cluster has no such node. Selectors
 *   of pods are then never resolved.
 * - `objects_undecided`: selectors cannot be evaluated for some pods or nodes, which exceed a limit or have
 *   the wrong shape. Their addresses are deny-only. `first`: the name of one of these objects.
 * - `objects_skipped`: the integration has too many objects. `count`: how many times an object was omitted.
 * - `claims_refused`: objects claim addresses that they may not own (`mayClaim`). `first`: one of the objects
 *   with the address.
 * - `address_shared`: another object owns an address in the integration `other`. The address is deny-only.
 *   `examples`: the first of the `count` addresses, with both objects.
 */
export type MembershipWarning =
  | {
      readonly code: 'host_network_skipped';
      readonly integration: string;
      readonly key: string;
      readonly count: number;
      readonly first: string;
    }
  | {
      readonly code: 'objects_undecided';
      readonly integration: string;
      readonly count: number;
      readonly first: string;
    }
  | { readonly code: 'pods_not_closed'; readonly integration: string }
  | { readonly code: 'node_unknown'; readonly integration: string; readonly node: string }
  | { readonly code: 'objects_skipped'; readonly integration: string; readonly count: number }
  | {
      readonly code: 'claims_refused';
      readonly integration: string;
      readonly count: number;
      readonly first: { readonly name: string; readonly address: Address };
    }
  | {
      readonly code: 'address_shared';
      readonly integration: string;
      readonly other: string;
      readonly count: number;
      readonly examples: readonly { readonly address: Address; readonly own: string; readonly foreign: string }[];
    };

/** The maximum number of addresses in a warning. */
const MAX_EXAMPLES = 8;

type Indexed = { readonly objects: IntegrationObjects; readonly index: SelectorIndex };

/** Visits all objects of the integration (Kubernetes API server). */
export function warningsOf(
  integration: string,
  { objects, index }: Indexed,
  podNetworks: readonly Prefix[],
): readonly MembershipWarning[] {
  const warnings: MembershipWarning[] = hostNetworkWarnings(integration, { objects, index });
  const hasPods = objects.scopes.some(({ resource }) => resource === 'pods');
  if (hasPods && podNetworks.length === 0) warnings.push({ code: 'pods_not_closed', integration });
  if (objects.scopes.some(({ resource }) => resource === 'nodes'))
    for (const node of unknownNodesOf(objects)) warnings.push({ code: 'node_unknown', integration, node });
  const undecided = [...objects.all()].filter((object) => object.undecided === true);
  const [first] = undecided;
  if (first !== undefined) {
    warnings.push({ code: 'objects_undecided', integration, count: undecided.length, first: nameOf(first) });
  }
  const refused = [...objects.all()].flatMap((object) =>
    claimedAddresses(object).flatMap((address) =>
      mayClaim(object, address, objects.facts) ? [] : [{ name: nameOf(object), address }],
    ),
  );
  const [refusedFirst] = refused;
  if (refusedFirst !== undefined)
    warnings.push({ code: 'claims_refused', integration, count: refused.length, first: refusedFirst });
  if (objects.skipped > 0) warnings.push({ code: 'objects_skipped', integration, count: objects.skipped });
  return warnings;
}

function hostNetworkWarnings(integration: string, { objects, index }: Indexed): MembershipWarning[] {
  const found = new Map<string, { count: number; readonly first: string }>();
  for (const pod of objects.pods) {
    if (!pod.hostNetwork) continue;
    for (const { key } of index.matching(pod, objects.namespaceLabelsOf(pod))) {
      const warning = found.get(key);
      if (warning === undefined) found.set(key, { count: 1, first: nameOf(pod) });
      else warning.count++;
    }
  }
  return [...found].map(([key, warning]) => ({ code: 'host_network_skipped', integration, key, ...warning }));
}

/**
 * Returns the warnings about shared addresses, one for each other integration. `shared`: the addresses of
 * which the integration (a Kubernetes API server) has an owner.
 */
export function sharedWarnings(
  integration: string,
  shared: readonly { readonly address: Address; readonly owners: readonly AddressOwner[] }[],
): readonly MembershipWarning[] {
  const found = new Map<
    string,
    { count: number; readonly examples: { address: Address; own: string; foreign: string }[] }
  >();
  for (const { address, owners } of shared) {
    const own = owners.find((owner) => owner.integration === integration)?.object;
    for (const { integration: other, object } of owners) {
      if (own === undefined || object.uid === own.uid) continue;
      const warning = found.get(other) ?? { count: 0, examples: [] };
      found.set(other, warning);
      warning.count++;
      if (warning.examples.length < MAX_EXAMPLES)
        warning.examples.push({ address, own: nameOf(own), foreign: nameOf(object) });
    }
  }
  return [...found].map(([other, warning]) => ({ code: 'address_shared', integration, other, ...warning }));
}

function nameOf(object: KubernetesObject): string {
  return object.resource === 'pods' ? `${object.namespace}/${object.name}` : object.name;
}

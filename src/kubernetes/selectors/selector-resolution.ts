import { compareAddresses, containsPrefix } from '#addresses/ip-address.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Prefix } from '#contracts/policy/policy-model.js';
import type { IntegrationObjects } from '#kubernetes/members/integration-objects.js';
import type { NodeRecord, ResourceName } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { isSelected, type NodeSelector, type ParsedSelector } from './selectors.js';

/**
 * Returns which selectors are resolved by the objects of the integrations (Kubernetes API servers), which
 * networks they select, and which networks are of pods. `integrations` maps the name of an integration to its
 * objects. `configuredNetworks`: the networks of pods in the configuration, which replace the networks of the
 * nodes.
 */
export function resolutionOf(
  selectors: readonly ParsedSelector[],
  integrations: ReadonlyMap<string, IntegrationObjects>,
  configuredNetworks: readonly Prefix[] | undefined,
): SelectorResolution {
  const resolved = new Set<string>();
  const networks = new Map<string, readonly Prefix[]>();
  for (const selector of selectors) {
    const objects = integrations.get(selector.integration);
    if (objects === undefined || !isResolvable(selector, objects)) continue;
    resolved.add(selector.key);
    if (selector.resource !== 'nodes' || !selector.podNetworks) continue;
    const found = networksOf(selector, objects);
    if (found.length > 0) networks.set(selector.key, found);
  }
  return {
    resolved,
    networks,
    podNetworks: sortedPrefixes(podNetworksOf([...integrations.values()], configuredNetworks)),
  };
}

/** Whether the watch scopes with a complete list contain all objects on which a selector depends. */
export function isResolvable(selector: ParsedSelector, objects: IntegrationObjects): boolean {
  if (selector.resource === 'nodes') {
    // If it is unknown whether the selector selects a node, the pod networks of the node are uncertain too.
    const isDecided = !selector.podNetworks || [...objects.nodes].every((node) => node.undecided !== true);
    return isDecided && has(objects, 'nodes');
  }
  if (selector.namespaceLabels !== undefined && !has(objects, 'namespaces')) return false;
  if (unknownNodesOf(objects).length > 0) return false;
  return has(objects, 'pods') || (selector.namespace !== undefined && has(objects, 'pods', selector.namespace));
}

/**
 * Returns the nodes whose pods are watched, but which are not known to exist in the cluster. The list of pods
 * is also empty if the name of a node is wrong, so such a list must not resolve selectors.
 */
export function unknownNodesOf({ scopes, nodes }: IntegrationObjects): readonly string[] {
  const names = new Set(scopes.flatMap(({ node }) => (node === null ? [] : [node])));
  if (names.size > 0) for (const { name } of nodes) names.delete(name);
  return [...names];
}

function has({ scopes }: IntegrationObjects, resource: ResourceName, namespace: string | null = null): boolean {
  return scopes.some((scope) => scope.resource === resource && scope.namespace === namespace);
}

/**
 * Returns the networks in which an address without an owner is deny-only (no allow rules of groups with
 * selectors apply). Returns none if only some namespaces are watched, because the pods of all other
 * namespaces would be deny-only too. If only the pods of one node are known, returns the networks of that
 * node.
 */
function podNetworksOf(all: readonly IntegrationObjects[], configured: readonly Prefix[] | undefined) {
  const withPods = all.filter(({ scopes }) => scopes.some(({ resource }) => resource === 'pods'));
  const complete = withPods.filter((objects) => has(objects, 'pods'));
  if (configured !== undefined) return complete.length > 0 && complete.length === withPods.length ? configured : [];
  return complete.flatMap((objects) => {
    const names = new Set(objects.scopes.filter(isOfAllNamespaces).map(({ node }) => node));
    const nodes = [...objects.nodes].filter(({ name }) => names.has(null) || names.has(name));
    return nodes.flatMap((node) => node.podNetworks);
  });
}

function isOfAllNamespaces({ resource, namespace }: WatchScope): boolean {
  return resource === 'pods' && namespace === null;
}

function networksOf(selector: NodeSelector, objects: IntegrationObjects): readonly Prefix[] {
  return sortedPrefixes(selectedNodes(selector, objects).flatMap((node) => node.podNetworks));
}

export function selectedNodes(selector: NodeSelector, { nodes }: IntegrationObjects): readonly NodeRecord[] {
  return [...nodes].filter((node) => isSelected(selector, node, undefined));
}

/** Returns the prefixes in order, without those that another prefix contains. */
function sortedPrefixes(prefixes: readonly Prefix[]): readonly Prefix[] {
  const sorted = [...prefixes].sort((a, b) => compareAddresses(a.address, b.address) || a.length - b.length);
  const kept: Prefix[] = [];
  for (const prefix of sorted) {
    const last = kept.at(-1);
    if (last === undefined || !containsPrefix(last, prefix)) kept.push(prefix);
  }
  return kept;
}

import type { Selector } from '#contracts/policy/policy-model.js';
import { parseSelector } from '#kubernetes/selectors/selectors.js';
import type { WantedObjects } from './watch-scopes.js';

/**
 * The settings that decide, besides selectors, which objects a node watches.
 * `areNewPodsDenyOnly`: whether, of groups with selectors, only the deny rules apply to the address of a new
 * pod until its labels are known. This needs the pods of all namespaces.
 * `hasPodNetworks`: whether the configuration lists the networks of pods, so that no node object is needed
 * for them.
 */
export type WantedOptions = {
  readonly node: string | null;
  readonly areNewPodsDenyOnly: boolean;
  readonly hasPodNetworks: boolean;
};

export function wantedObjectsOf(
  selectors: Iterable<Selector>,
  { node, areNewPodsDenyOnly, hasPodNetworks }: WantedOptions,
): WantedObjects {
  const pods = new Set<string>();
  let hasPods = false;
  let isOfAll = areNewPodsDenyOnly;
  let nodes = false;
  let namespaces = false;
  for (const selector of selectors) {
    const parsed = parseSelector(selector);
    if (parsed.resource === 'nodes') nodes = true;
    else {
      hasPods = true;
      if (parsed.namespace === undefined) isOfAll = true;
      else pods.add(parsed.namespace);
      namespaces ||= parsed.namespaceLabels !== undefined;
    }
  }
  return {
    pods: hasPods && isOfAll ? 'all' : pods,
    // If only the pods of one node are watched, watch the node objects too, to know whether the cluster has
    // this node.
    nodes: nodes || (hasPods && (node !== null || (areNewPodsDenyOnly && !hasPodNetworks))),
    namespaces,
    node,
  };
}

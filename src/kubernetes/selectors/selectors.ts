import type { LabelSelectorConfig } from '#contracts/policy/policy-document.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import type { KubernetesObject, Labels, NodeRecord, PodRecord } from '#kubernetes/watch/objects.js';

/** This file parses the selectors of policies, and decides whether a selector selects an object. */

/** A condition on one label. `values` is empty for Exists and DoesNotExist. */
type Requirement = {
  readonly key: string;
  readonly operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
  readonly values: readonly string[];
};

/** A parsed selector, in the form that is used to compare it with objects. */
export type ParsedSelector = PodSelector | NodeSelector;

type PodSelector = {
  readonly resource: 'pods';
  readonly key: string;
  readonly integration: string;
  readonly labels: readonly Requirement[];
  readonly namespace: string | undefined;
  readonly serviceAccount: string | undefined;
  /** The conditions on the labels of the namespace; undefined if the labels do not matter. */
  readonly namespaceLabels: readonly Requirement[] | undefined;
};

export type NodeSelector = {
  readonly resource: 'nodes';
  readonly key: string;
  readonly integration: string;
  readonly labels: readonly Requirement[];
  readonly internal: boolean;
  readonly external: boolean;
  readonly podNetworks: boolean;
};

export function parseSelector({ key, source }: Selector): ParsedSelector {
  const { integration, pod_selector: pod, node_selector: node } = source;
  if (pod !== undefined) {
    const { namespace_selector: namespaces } = pod;
    return {
      resource: 'pods',
      key,
      integration,
      labels: requirementsOf(pod),
      namespace: pod.namespace,
      serviceAccount: pod.service_account,
      namespaceLabels: namespaces === undefined ? undefined : requirementsOf(namespaces),
    };
  }
  const addresses = new Set(node?.addresses ?? ['InternalIP']);
  return {
    resource: 'nodes',
    key,
    integration,
    labels: requirementsOf(node ?? {}),
    internal: addresses.has('InternalIP'),
    external: addresses.has('ExternalIP'),
    podNetworks: addresses.has('podCIDRs'),
  };
}

function requirementsOf({ match_labels: labels = {}, match_expressions: expressions = [] }: LabelSelectorConfig) {
  const requirements: Requirement[] = [];
  for (const [key, value] of Object.entries(labels)) requirements.push({ key, operator: 'In', values: [value] });
  for (const { key, operator, values = [] } of expressions) requirements.push({ key, operator, values });
  return requirements;
}

/**
 * Whether a selector selects an object. `namespaceLabels` are the labels of the namespace of a pod, and
 * undefined if there is no such namespace.
 */
export function isSelected(
  selector: ParsedSelector,
  object: KubernetesObject,
  namespaceLabels: Labels | undefined,
): boolean {
  if (selector.resource !== object.resource || !areMet(selector.labels, object.labels)) return false;
  return selector.resource === 'nodes' || isOfPod(selector, object as PodRecord, namespaceLabels);
}

/**
 * Whether a selector could select a pod whose namespace is not known: all conditions hold except those on the
 * labels of the namespace.
 */
export function mayBeSelected(selector: ParsedSelector, pod: PodRecord): boolean {
  if (selector.resource !== 'pods' || selector.namespaceLabels === undefined) return false;
  return areMet(selector.labels, pod.labels) && isOfPod({ ...selector, namespaceLabels: undefined }, pod, undefined);
}

function isOfPod(selector: PodSelector, pod: PodRecord, labels: Labels | undefined): boolean {
  const { namespace, serviceAccount, namespaceLabels } = selector;
  if (namespace !== undefined && namespace !== pod.namespace) return false;
  if (serviceAccount !== undefined && serviceAccount !== pod.serviceAccount) return false;
  return namespaceLabels === undefined || (labels !== undefined && areMet(namespaceLabels, labels));
}

/** Whether a selector of nodes selects this address of a node. */
export function selectsAddress({ internal, external }: NodeSelector, node: NodeRecord, address: Address): boolean {
  return (internal && node.internal.includes(address)) || (external && node.external.includes(address));
}

function areMet(requirements: readonly Requirement[], labels: Labels): boolean {
  return requirements.every((requirement) => isMet(requirement, labelOf(labels, requirement.key)));
}

/** Returns whether labels fulfil a condition. As in Kubernetes, an absent label fulfils NotIn. */
function isMet({ operator, values }: Requirement, value: string | undefined): boolean {
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
  }
}

function labelOf(labels: Labels, key: string): string | undefined {
  for (let at = 0; at < labels.length; at += 2) if (labels[at] === key) return labels[at + 1];
  return undefined;
}

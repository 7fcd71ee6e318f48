import { parseAddress, parseIpv4Address } from '#addresses/ip-address.js';
import type { KubernetesSource, NodeSelectorConfig, PodSelectorConfig } from '#contracts/policy/policy-document.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import type { NamespaceRecord, NodeRecord, PodRecord, ResourceName } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { selectorOf } from '#policy/model/sources/selector.js';

type Labels = Readonly<Record<string, string>>;

export function ip(text: string): number {
  const address = parseIpv4Address(text);
  if (address === undefined) throw new RangeError(`not an address: ${text}`);
  return address;
}

/** Parses an IPv6 address. */
export function ipv6(text: string): bigint {
  const address = parseAddress(text);
  if (typeof address !== 'bigint') throw new RangeError(`not an IPv6 address: ${text}`);
  return address;
}

/** A running pod. Its version is 1, and its uid is its name. */
export function pod(name: string, fields: Partial<Omit<PodRecord, 'labels'>> & { labels?: Labels } = {}): PodRecord {
  const { labels = {}, ...others } = fields;
  return {
    resource: 'pods',
    uid: name,
    name,
    namespace: 'shop',
    labels: pairs(labels),
    serviceAccount: 'default',
    nodeName: 'node-1',
    addresses: [],
    hostNetwork: false,
    phase: 'Running',
    deleting: false,
    running: true,
    version: 1,
    started: 1,
    ...others,
  };
}

export function node(name: string, fields: Partial<Omit<NodeRecord, 'labels'>> & { labels?: Labels } = {}): NodeRecord {
  const { labels = {}, ...others } = fields;
  const none = { internal: [], external: [], podNetworks: [] };
  return { resource: 'nodes', uid: name, name, labels: pairs(labels), version: 1, started: 1, ...none, ...others };
}

export function namespace(name: string, labels: Labels = {}, version = 1): NamespaceRecord {
  return { resource: 'namespaces', uid: `namespace-${name}`, name, labels: pairs(labels), version, started: 1 };
}

export function scope(
  resource: ResourceName,
  namespaceName: string | null = null,
  nodeName: string | null = null,
): WatchScope {
  return { resource, namespace: namespaceName, node: nodeName };
}

export function podSelector(selector: PodSelectorConfig, integration = 'prod'): Selector {
  return selectorOf({ integration, pod_selector: selector } satisfies KubernetesSource);
}

export function nodeSelector(selector: NodeSelectorConfig, integration = 'prod'): Selector {
  return selectorOf({ integration, node_selector: selector } satisfies KubernetesSource);
}

function pairs(labels: Labels): readonly string[] {
  return Object.entries(labels)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flat();
}

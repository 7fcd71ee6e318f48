import { AddressMap } from '#addresses/address-map.js';
import { compareAddresses, formatAddress, formatPrefix } from '#addresses/ip-address.js';
import type {
  IntegrationFacts,
  MemberPage,
  ObjectCounts,
  OwnedNetwork,
} from '#contracts/kubernetes/kubernetes-source.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import type { MembershipWarning } from '#kubernetes/members/membership-warnings.js';
import type { Memberships } from '#kubernetes/members/memberships.js';
import { sourceOf } from '#policy/model/sources/selector.js';

/**
 * Returns the numbers and warnings about an API server for its status. `selectors`: the selectors of the
 * policies.
 */
export function factsOf(name: string, memberships: Memberships, selectors: readonly Selector[]): IntegrationFacts {
  const counts = memberships.counts();
  return {
    objects: objectCountsOf(name, memberships),
    selectors: selectors
      .filter(({ source }) => source.integration === name)
      .map(({ key }) => ({
        key,
        resolved: memberships.resolution.resolved.has(key),
        addresses: counts.get(key) ?? 0,
        networks: memberships.networksOf(key).length,
      })),
    warnings: memberships.warnings(name).map((warning) => ({ code: warning.code, message: sentenceOf(warning) })),
  };
}

export function objectCountsOf(name: string, memberships: Memberships): ObjectCounts {
  const objects = memberships.objectsOf(name);
  return {
    pods: objects?.count('pods') ?? 0,
    nodes: objects?.count('nodes') ?? 0,
    namespaces: objects?.count('namespaces') ?? 0,
  };
}

function sentenceOf(warning: MembershipWarning): string {
  switch (warning.code) {
    case 'host_network_skipped':
      return `the selector ${warning.key} selects ${warning.count} pods in the network of their node, for example ${warning.first}: they give it no address`;
    case 'pods_not_closed':
      return 'the networks of pods are not known: no deny rule by a selector matches a new pod until its status arrives';
    case 'node_unknown':
      return `the cluster has no node ${warning.node}, whose pods this node watches (kubernetes.scope): no selector of pods is resolved`;
    case 'objects_skipped':
      return `the integration has too many objects: ${warning.count} times an object was left out`;
    case 'objects_undecided':
      return `${warning.count} objects exceed a bound or have the wrong shape, for example ${warning.first}: their addresses get no allow rule by a selector, and every deny rule`;
    case 'claims_refused':
      return `${warning.count} addresses of objects are not used, for example ${formatAddress(warning.first.address)} of ${warning.first.name}: they are outside kubernetes.pod_cidrs, or loopback, multicast or own addresses of this node. No rule by a selector matches them`;
    case 'address_shared': {
      const examples = warning.examples.map(
        ({ address, own, foreign }) => `${formatAddress(address)} (${own} here, ${foreign} there)`,
      );
      const more = warning.count > examples.length ? `, and ${warning.count - examples.length} more` : '';
      return `other objects of the integration ${warning.other} have addresses of this one: ${examples.join(', ')}${more}. No allow rule by a selector matches these addresses, and every deny rule by a selector does`;
    }
  }
}

/**
 * Returns the selected addresses after the address `after`, ascending and IPv4 first, and the selected
 * networks.
 */
export function membersOf(
  memberships: Memberships,
  keys: readonly string[],
  { after, limit }: { readonly after: Address | null; readonly limit: number },
): MemberPage {
  // Two integrations can contain the same object. Use the name of the integration of the selector.
  const found = new AddressMap<string>();
  for (const key of keys)
    for (const address of memberships.membersOf(key)) found.set(address, sourceOf(key).integration);
  const members = [...found.keys()]
    .filter((address) => after === null || compareAddresses(address, after) > 0)
    .sort(compareAddresses)
    .slice(0, limit)
    .flatMap((address) => {
      const owner = memberships.owners.get(address);
      const integration = found.get(address);
      return owner === undefined || integration === undefined ? [] : [{ address, owner: { ...owner, integration } }];
    });
  return { networks: after === null ? networksOf(memberships, keys) : [], total: found.size, members };
}

/** Returns the networks of pods that the selectors select. Two selectors can select the same node. */
function networksOf(memberships: Memberships, keys: readonly string[]): readonly OwnedNetwork[] {
  const found = new Map<string, OwnedNetwork>();
  for (const network of keys.flatMap((key) => memberships.networksOf(key)))
    found.set(`${network.owner.integration}/${network.owner.name}/${formatPrefix(network.prefix)}`, network);
  return [...found.values()].sort(
    ({ prefix: a }, { prefix: b }) => compareAddresses(a.address, b.address) || a.length - b.length,
  );
}

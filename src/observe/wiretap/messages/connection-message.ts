import { formatAddress } from '#addresses/ip-address.js';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import type { AddressNames } from '#observe/names/address-names.js';
import type { AddressOwners } from '#observe/names/address-owners.js';
import type { RuleNameResolver } from '#observe/names/rule-name-resolver.js';

type ConnectionSurroundings = {
  readonly ruleNameResolver: RuleNameResolver;
  readonly names: AddressNames;
  readonly owners: AddressOwners;
};

/**
 * Returns the wiretap message (D32) about a connection or request that the service plane (TLS and HTTP
 * inspection) decided, as the text of one JSON object.
 */
export function connectionMessage(
  seen: SeenConnection,
  { ruleNameResolver, names, owners }: ConnectionSurroundings,
): string {
  const { kind, source, destination, generation, verdict, http } = seen;
  const decider = ruleNameResolver.ofNames(generation, seen.decider);
  const { sourceGroup, rule, decidedBy, policyId } = decider;
  const sourceOwner = owners.of(source, seen.atMs);
  const sourceGroups = ruleNameResolver.groupsOfSource(decider, source, sourceOwner);
  return JSON.stringify({
    type: kind,
    time: new Date(seen.atMs).toISOString(),
    src: formatAddress(source),
    src_port: seen.sourcePort,
    dst: formatAddress(destination),
    dst_port: seen.destinationPort,
    proto: IPPROTO.tcp,
    icmp_id: null,
    src_names: names.of(source),
    dst_names: names.of(destination),
    ...shownOwners(sourceOwner, owners.of(destination, seen.atMs)),
    verdict,
    effective_action: verdict === 'deny' ? 'deny' : 'allow',
    source_group: sourceGroup,
    rule,
    decided_by: decidedBy,
    policy_id: policyId,
    ...(sourceGroups === undefined ? {} : { source_groups: sourceGroups }),
    generation,
    interface: null,
    reason: seen.reason,
    sni: seen.sni,
    ...(http === null ? {} : { http }),
  });
}

/**
 * Returns the fields of a wiretap message for the Kubernetes owners of its addresses. Returns no fields if
 * neither address has an owner.
 */
export function shownOwners(
  source: OwnerName | null,
  destination: OwnerName | null,
): { readonly src_owner?: OwnerName | null; readonly dst_owner?: OwnerName | null } {
  return source === null && destination === null ? {} : { src_owner: source, dst_owner: destination };
}

import type { KubernetesSource, TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';

/** Types of the JSON answers about sets of flows. Numbers that can exceed 2^53 are decimal texts. */

/**
 * A set of addresses, of IPv4, IPv6 or both: the networks in `networks` without those in `except`. `omitted`:
 * how many networks the two lists leave out. `addresses`: the number of addresses in the set.
 */
export type AddressSet = {
  readonly networks: readonly string[];
  readonly except: readonly string[];
  readonly omitted: number;
  readonly addresses: string;
};

/**
 * A set of protocols with destination ports or ICMP types and codes, such as `tcp/22`, `udp/8000-8100`,
 * `icmp/8`, `icmpv6/128`, `any`. The members of `except` are not in the set.
 */
export type ServiceSet = {
  readonly services: readonly string[];
  readonly except: readonly string[];
  readonly omitted: number;
};

/** A fact beside addresses and ports that must hold for the flows of a region (set of flows). */
export type FlowCondition =
  | { readonly kind: 'hostname'; readonly pattern: HostnamePattern['text'] }
  | { readonly kind: 'selected' | 'unresolved'; readonly selector: KubernetesSource }
  | { readonly kind: 'deny_only' }
  | { readonly kind: 'tls'; readonly state: 'matches' | 'may_match' | 'hidden'; readonly tls: TlsMatchConfig };

/**
 * The rule or default that decides flows; `rule` is null for a default, and both are null for the policy.
 */
export type FlowDecider = {
  readonly decision: 'allow' | 'deny';
  readonly mode: 'audit' | 'enforce';
  readonly source_group: string | null;
  readonly rule: string | null;
};

/** One flow of a region (set of flows), with the field names of an explain request. */
export type FlowExample = {
  readonly src: string;
  readonly dst: string;
  readonly proto: number;
  readonly src_port?: number | undefined;
  readonly dst_port?: number | undefined;
  readonly icmp_type?: number | undefined;
  readonly icmp_code?: number | undefined;
  readonly hostname?: string | undefined;
};

/**
 * A set of flows of one IP family that all sources, destinations, services and source ports of the region
 * form together.
 * `source_ports` is empty if every source port is in the set.
 */
export type FlowRegion = {
  readonly sources: AddressSet;
  readonly destinations: AddressSet;
  readonly services: ServiceSet;
  readonly source_ports: readonly string[];
  /** All of these hold. */
  readonly conditions: readonly FlowCondition[];
  /**
   * Sets of conditions: the statement about the region (set of flows) is not true for flows for which one
   * whole set holds.
   */
  readonly unless: readonly (readonly FlowCondition[])[];
  readonly flows: string;
  readonly example: FlowExample;
};

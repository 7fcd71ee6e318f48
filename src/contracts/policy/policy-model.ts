import type { KubernetesSource, TlsMatchConfig } from './policy-document.js';

/**
 * This file defines the policy model: a policy in the form that the evaluators and the compiler use. All
 * defaults are filled in, keywords are in lower case, and groups and rules are in the order of evaluation
 * (D3).
 */
export type Action = 'allow' | 'deny';
export type Mode = 'audit' | 'enforce';

/**
 * The result for a packet. `audit`: a deny matches the packet, but its mode is audit, so the datapath passes
 * the packet and reports it (D4). `redirect`: a rule with TLS matchers may match, so the datapath sends the
 * packet to the service plane.
 */
export type Verdict = 'allow' | 'deny' | 'audit' | 'redirect';

/**
 * An IP address in host order. An IPv4 address is a number of 32 bits: 10.0.0.1 is 0x0a000001. An IPv6
 * address is a bigint of 128 bits.
 */
export type Address = number | bigint;
export type Family = 'ipv4' | 'ipv6';
export const FAMILIES: readonly Family[] = ['ipv4', 'ipv6'];
export type AddressOf<F extends Family> = F extends 'ipv4' ? number : bigint;
export type Prefix<A extends Address = Address> = { readonly address: A; readonly length: number };
/** A range of numbers that includes both `low` and `high`. */
export type Range = { readonly low: number; readonly high: number };

export type HostnamePattern =
  | { readonly kind: 'exact'; readonly labels: readonly string[]; readonly text: string }
  /** A pattern such as `*.example.com`: it matches names with at least one label before `labels`. */
  | { readonly kind: 'suffix'; readonly labels: readonly string[]; readonly text: string }
  | { readonly kind: 'any'; readonly text: '*' }
  | { readonly kind: 'regex'; readonly text: string };

export type Rule = {
  readonly id: string;
  /**
   * JSON pointer of the rule, relative to its group. So the rule object stays the same if its group moves to
   * another place in the document.
   */
  readonly pointer: string;
  readonly action: Action;
  /**
   * The mode that applies to the rule: the mode that the document gives the rule, or else the mode of its
   * group.
   */
  readonly mode: Mode;
  /** The union of `dst_cidrs` and `dst_ips`. An empty list matches any destination. */
  readonly destinations: readonly Prefix[];
  readonly hostname: HostnamePattern | undefined;
  readonly protocol: number | 'any';
  /**
   * An empty list of ports matches any port. A rule with ports matches only protocols that have ports (D2).
   */
  readonly sourcePorts: readonly Range[];
  readonly destinationPorts: readonly Range[];
  /**
   * The ICMP types, with the default types of D14 added. An empty list matches any type. A packet must match
   * `icmpTypes` and `icmpCodes`, each on its own.
   */
  readonly icmpTypes: readonly number[];
  readonly icmpCodes: readonly number[];
  /**
   * The TLS matchers. A rule with TLS matchers matches TCP only, and the service plane decides its
   * connections (D22).
   */
  readonly tls: TlsMatchConfig | undefined;
};

/** A Kubernetes selector of a source group. Selectors with equal `key` select the same addresses. */
export type Selector = { readonly key: string; readonly source: KubernetesSource };

export type Group = {
  readonly id: string;
  /** JSON pointer of the group in the document. */
  readonly pointer: string;
  readonly mode: Mode;
  /** The source prefixes that the document lists. Addresses that selectors would add are not included. */
  readonly sources: readonly Prefix[];
  /**
   * The Kubernetes selectors of the group (D38a). `ruleScopeOf` tells which rules of the group apply to a
   * source outside `sources`.
   */
  readonly selectors: readonly Selector[];
  /** The rules of the group in the order of evaluation (D3). */
  readonly rules: readonly Rule[];
  readonly defaultAction: Action | undefined;
};

export type Policy = {
  /** The source groups in the order of evaluation (D3). */
  readonly groups: readonly Group[];
  readonly default: {
    readonly action: Action;
    readonly mode: Mode;
    readonly from: 'default_policy' | 'fallback';
  };
};

/**
 * The packet fields that rules match. The ports are 0 if the protocol has no ports. ICMP type and code are 0
 * if the protocol is not ICMP, or not ICMPv6 in a packet of IPv6.
 */
export type Packet<A extends Address = Address> = {
  readonly source: A;
  readonly destination: A;
  readonly protocol: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly icmpType: number;
  readonly icmpCode: number;
};

/** The addresses and ports of a packet, in host byte order. */
export type Ends<A extends Address = Address> = Pick<
  Packet<A>,
  'source' | 'destination' | 'sourcePort' | 'destinationPort'
>;
export function reversed<A extends Address>({ source, destination, sourcePort, destinationPort }: Ends<A>): Ends<A> {
  return { source: destination, destination: source, sourcePort: destinationPort, destinationPort: sourcePort };
}

/**
 * Tells whether an address is granted for a hostname pattern (D12). Patterns with equal `text` have the same
 * grants.
 */
/** Returns whether a packet is of IPv4. */
export function isOfIpv4(packet: Packet): packet is Packet<number> {
  return typeof packet.source === 'number';
}

export type Grants = { has(pattern: HostnamePattern, address: Address): boolean };
export const noGrants: Grants = { has: () => false };

export const IPPROTO = { icmp: 1, tcp: 6, udp: 17, dccp: 33, icmpv6: 58, sctp: 132, udplite: 136 } as const;

/** The protocol of the ICMP messages of each family. */
export const ICMP: Readonly<Record<Family, number>> = { ipv4: IPPROTO.icmp, ipv6: IPPROTO.icmpv6 };

/** Whether the packets of a protocol have a message type and code in place of ports. */
export function isIcmp(protocol: number): boolean {
  return protocol === IPPROTO.icmp || protocol === IPPROTO.icmpv6;
}

/**
 * Returns the protocol that the ICMP types and codes of a rule are about. Under the protocol `any` they are
 * those of IPv4.
 */
export function icmpOf({ protocol }: Pick<Rule, 'protocol'>): number {
  return protocol === IPPROTO.icmpv6 ? IPPROTO.icmpv6 : IPPROTO.icmp;
}

/** The IP protocols whose header begins with the source port and the destination port (D2). */
export const PORT_PROTOCOLS: readonly number[] = [
  IPPROTO.tcp,
  IPPROTO.udp,
  IPPROTO.dccp,
  IPPROTO.sctp,
  IPPROTO.udplite,
];

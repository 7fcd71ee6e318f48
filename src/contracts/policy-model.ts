import type { TlsMatchConfig } from './policy-document.js';

/**
 * The policy as it is evaluated: defaults filled in, words in lower case, addresses as numbers, groups and
 * rules in the order of evaluation (D3). Addresses are unsigned 32-bit numbers in host order: 10.0.0.1 is
 * 0x0a000001.
 */
export type Action = 'allow' | 'deny';
export type Mode = 'audit' | 'enforce';

/** The decision about a packet. `audit` is a deny that passes and is recorded (D4). */
export type Verdict = 'allow' | 'deny' | 'audit' | 'redirect';

export type Prefix = { readonly address: number; readonly length: number };
/** Both ends are included. */
export type Range = { readonly low: number; readonly high: number };

export type HostnamePattern =
  | { readonly kind: 'exact'; readonly labels: readonly string[]; readonly text: string }
  /** `*.example.com`: one or more labels before `labels`. */
  | { readonly kind: 'suffix'; readonly labels: readonly string[]; readonly text: string }
  | { readonly kind: 'any'; readonly text: '*' }
  | { readonly kind: 'regex'; readonly text: string };

export type Rule = {
  readonly id: string;
  /** JSON pointer of the rule relative to its group, so that a rule does not change if its group moves. */
  readonly pointer: string;
  readonly action: Action;
  /** The effective mode: the mode of the rule, else the mode of its group. */
  readonly mode: Mode;
  /** Union of `dst_cidrs` and `dst_ips`; empty means any destination. */
  readonly destinations: readonly Prefix[];
  readonly hostname: HostnamePattern | undefined;
  readonly protocol: number | 'any';
  /** Both lists: empty means any. A rule with ports matches only protocols that have ports (D2). */
  readonly sourcePorts: readonly Range[];
  readonly destinationPorts: readonly Range[];
  /** After the types of D14 were added; empty means any. Types and codes are tested independently. */
  readonly icmpTypes: readonly number[];
  readonly icmpCodes: readonly number[];
  /** A TLS rule matches TCP only and is decided by the service plane (D22). */
  readonly tls: TlsMatchConfig | undefined;
};

export type Group = {
  readonly id: string;
  /** JSON pointer of the group in the document. */
  readonly pointer: string;
  readonly mode: Mode;
  /** Static sources. */
  readonly sources: readonly Prefix[];
  /**
   * Whether the group has selectors. No selector was ever resolved: for sources that are not static, its
   * denies match and its allows do not (D19a).
   */
  readonly dynamic: boolean;
  /** In the order of evaluation. */
  readonly rules: readonly Rule[];
  readonly defaultAction: Action | undefined;
};

export type Policy = {
  /** In the order of evaluation. */
  readonly groups: readonly Group[];
  readonly default: {
    readonly action: Action;
    readonly mode: Mode;
    readonly from: 'default_policy' | 'fallback';
  };
};

/** Ports are 0 if the protocol has none. Type and code are 0 unless the protocol is ICMP. */
export type Packet = {
  readonly source: number;
  readonly destination: number;
  readonly protocol: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly icmpType: number;
  readonly icmpCode: number;
};

/** Addresses that were granted for a hostname pattern (D12). The key of a pattern is its `text`. */
export type Grants = { has(pattern: HostnamePattern, address: number): boolean };
export const noGrants: Grants = { has: () => false };

export const IPPROTO = { icmp: 1, tcp: 6, udp: 17, dccp: 33, sctp: 132, udplite: 136 } as const;

/** Protocols whose header begins with two ports (D2). */
export const PORT_PROTOCOLS: readonly number[] = [
  IPPROTO.tcp,
  IPPROTO.udp,
  IPPROTO.dccp,
  IPPROTO.sctp,
  IPPROTO.udplite,
];
